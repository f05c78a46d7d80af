package state

import (
	"net/netip"
	"slices"
	"time"
)

// maxRelays bounds the stored allocations.
const maxRelays = 16

// RelayGrant is an allocation on a TURN server that may outlive the process.
type RelayGrant struct {
	// Server and Username are as configured; Address is the server's address at the time.
	Server   string         `json:"server"`
	Username string         `json:"username"`
	Address  netip.AddrPort `json:"address"`
	// Port is the gateway's own, the only one from which the allocation can be used.
	Port uint16 `json:"port"`
	// Relayed is the address at the server, Mapped our own as the server saw it.
	Relayed netip.AddrPort `json:"relayed"`
	Mapped  netip.AddrPort `json:"mapped"`
	// Expires is when the server drops it unless it is refreshed.
	Expires time.Time `json:"expires"`
}

// relayGrants is the file.
type relayGrants struct {
	Relays []RelayGrant `json:"relays"`
}

func (g relayGrants) clone() relayGrants { return relayGrants{slices.Clone(g.Relays)} }

var relaysFormat = format[relayGrants]{
	name: "relays", major: 1,
	encode: func(g relayGrants) (any, error) { return g, nil },
	decode: decodeJSON[relayGrants], clone: relayGrants.clone, lazy: true,
	loss: "the allocations on relays; the servers give new ones",
}

// Relays returns the latest allocations, of any process.
func (s *Store) Relays() []RelayGrant { return s.relays.load().clone().Relays }

// SetRelays replaces them with the first 16 of the list. It writes only changes.
func (s *Store) SetRelays(list []RelayGrant) error {
	list = slices.Clone(list[:min(len(list), maxRelays)])
	for i := range list {
		list[i].Expires = list[i].Expires.Round(0).UTC()
	}
	return s.relays.update(func(g *relayGrants) error { g.Relays = list; return nil })
}
