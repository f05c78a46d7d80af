package access

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/api"
)

// portAPIServer is the port of a peer's Service for its API server: the one of the service inside
// the tunnel, which clients expect.
const portAPIServer = api.PortAPIServer

// port is a port of a peer's Service.
type port struct {
	name   string
	number uint16 // 0 means unknown: the Service's current one stays
	target uint16 // the listener's in the gateway's pod
}

// offer is what pods may use of a peer.
type offer struct {
	peer  string
	ports []port // sorted by name
	// secret is the data of its kubeconfig's Secret; nil without an identity, and then the last one
	// stays. noSecret: there must be none.
	secret   map[string][]byte
	noSecret bool
	// keep: there are currently no ports, but an existing Service stays. noService: there must be
	// none.
	keep, noService bool
}

// wanted returns the current offers of the peers.
func (k *Keeper) wanted(ctx context.Context) ([]offer, error) {
	s, err := k.o.Gateway.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the gateway for its peers: %w", err)
	}
	var out []offer
	for _, p := range s.Peers {
		if p.Stock || p.ApprovalFingerprint != "" {
			continue
		}
		o := offer{peer: p.Name, ports: k.portsOf(p)}
		direct := p.Mode == api.ModeOutOfBand // its API server is reached outside the tunnel
		none := len(o.ports) == 0
		o.noService = none && announced(p) && !offers(p)
		o.keep = none && !o.noService
		switch {
		case direct || slices.Contains(p.Offers, api.ServiceAPIServer):
			o.secret = k.kubeconfig(ctx, p.Name, direct)
		case announced(p):
			o.noSecret = true
		}
		out = append(out, o)
	}
	return out, nil
}

// announced reports whether the peer has announced its offers in this run. Before that nothing is
// deleted: a gateway that takes over from another hears them a moment after it is connected, and a
// recreated Service has another address.
func announced(p api.PeerStatus) bool { return p.Version != "" }

// offers reports whether a peer offers anything that a Service can lead to, even if it currently
// has no listener.
func offers(p api.PeerStatus) bool {
	return slices.ContainsFunc(p.Offers, func(s string) bool { return s != api.ServiceAuth })
}

// portsOf returns the listeners that a Service can lead to: not those on the loopback interface,
// which an operator asked for.
func (k *Keeper) portsOf(p api.PeerStatus) []port {
	var out []port
	for _, l := range p.Local {
		a, err := netip.ParseAddrPort(l.Address)
		if err != nil || l.Error != "" || a.Addr().IsLoopback() || a.Port() == 0 || !slices.Contains(p.Offers, l.Service) {
			continue
		}
		number, _ := k.o.Gateway.ServicePort(p.Name, l.Service)
		if l.Service == api.ServiceAPIServer {
			number = portAPIServer
		}
		out = append(out, port{name: portName(l.Service), number: number, target: a.Port()})
	}
	slices.SortFunc(out, func(a, b port) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return out
}

// portName is the name of a service in a Service. It must be a DNS label, which apiServer is not.
func portName(service string) string {
	switch service {
	case api.ServiceAPIServer:
		return "apiserver"
	case "apiserver":
		return "apiserver-named"
	}
	return service
}
