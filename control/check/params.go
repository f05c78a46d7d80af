package check

import (
	"encoding/base64"
	"time"
)

// GatewayParams are the parameters of the codes about tunnel, path and exposure.
type GatewayParams struct {
	// From is the address and port that something came from, Seen when it last did.
	From string    `json:"from,omitempty"`
	Seen time.Time `json:"seen,omitzero"`
	// Key is a public key in base64.
	Key string `json:"key,omitempty"`
	// Own are addresses of this gateway as others see them, with the port; Port is the one
	// it listens on.
	Own  []string `json:"own,omitempty"`
	Port uint16   `json:"port,omitempty"`
	// Candidates are the addresses concerned and what became of each.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Stamp is a handshake's timestamp, Newest the newest that was accepted.
	Stamp  time.Time `json:"stamp,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// Was and Now are a name's addresses before and after they changed.
	Was []string `json:"was,omitempty"`
	Now []string `json:"now,omitempty"`
	// Sent and Lost count pings, Jitter is the mean difference of successive round trips.
	Sent   int           `json:"sent,omitempty"`
	Lost   int           `json:"lost,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// MTU is the largest overlay packet that crosses the path, LinkMTU the overlay's own,
	// Size the smallest that was seen to vanish; in bytes, 0 = not known.
	MTU     int `json:"mtu,omitempty"`
	LinkMTU int `json:"linkMtu,omitempty"`
	Size    int `json:"size,omitempty"`
	// NAT is in front of this gateway, PeerNAT in front of the peer.
	NAT     NAT `json:"nat,omitzero"`
	PeerNAT NAT `json:"peerNat,omitzero"`
	// PeerShut: what the peer announces can be dialled by nobody outside of its network.
	PeerShut bool `json:"peerShut,omitempty"`
	// Relay is a TURN server, Server any server, as configured.
	Relay  string `json:"relay,omitempty"`
	Server string `json:"server,omitempty"`
	// Skew is the peer's clock minus ours.
	Skew time.Duration `json:"skew,omitempty"`
}

// ResourceParams are the parameters of the codes about what the machine gives.
type ResourceParams struct {
	// Used and Max are bytes, or periods of the scheduler.
	Used uint64 `json:"used,omitempty"`
	Max  uint64 `json:"max,omitempty"`
	// Drops counts what was dropped.
	Drops uint64 `json:"drops,omitempty"`
}

// clean makes every text safe to show. A key that is none is dropped: it is offered to be
// pasted.
func (p GatewayParams) clean() GatewayParams {
	for _, s := range []*string{&p.From, &p.Relay, &p.Server,
		&p.NAT.Mapping, &p.NAT.Filtering, &p.PeerNAT.Mapping, &p.PeerNAT.Filtering} {
		*s = cleanText(*s)
	}
	if raw, err := base64.StdEncoding.DecodeString(p.Key); err != nil || len(raw) != keySize || base64.StdEncoding.EncodeToString(raw) != p.Key {
		p.Key = ""
	}
	p.Own, p.Was, p.Now = cleanAll(p.Own), cleanAll(p.Was), cleanAll(p.Now)
	candidates := make([]Candidate, 0, len(p.Candidates))
	for _, c := range p.Candidates {
		candidates = append(candidates, Candidate{Address: cleanText(c.Address), Source: cleanText(c.Source),
			State: cleanText(c.State), Reason: cleanText(c.Reason), Relay: cleanText(c.Relay)})
	}
	p.Candidates = candidates
	return p
}

// keySize is that of a WireGuard public key in bytes.
const keySize = 32
