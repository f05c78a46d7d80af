package simnet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Network connects hosts and NATs: the public internet, or the inside of a NAT.
type Network struct {
	in   *Internet
	name string
	// gateway is the NAT to whose inside it belongs; nil for the public internet.
	gateway *NAT

	links  []*Link
	byAddr map[netip.Addr]*Link
	routes []route // longest prefix first
}

// route leads a prefix to a NAT that passes it untranslated.
type route struct {
	prefix netip.Prefix
	link   *Link
}

func newNetwork(in *Internet, name string, gateway *NAT) *Network {
	return &Network{in: in, name: name, gateway: gateway, byAddr: make(map[netip.Addr]*Link)}
}

// Name returns "internet" or the name of the network's NAT.
func (n *Network) Name() string { return n.name }

// attachLocked attaches a link's end with all its addresses, or fails without effect.
func (n *Network) attachLocked(l *Link, addrs []netip.Addr, routed []netip.Prefix) error {
	for i, a := range addrs {
		if other := n.byAddr[a]; other != nil && other != l || slices.Contains(addrs[:i], a) {
			return fmt.Errorf("%w: %v is taken on network %s", ErrAddress, a, n.name)
		}
	}
	for a, owner := range n.byAddr {
		if owner == l {
			delete(n.byAddr, a)
		}
	}
	for _, a := range addrs {
		n.byAddr[a] = l
	}
	if !slices.Contains(n.links, l) {
		n.links = append(n.links, l)
	}
	for _, p := range routed {
		n.routes = append(n.routes, route{p.Masked(), l})
	}
	slices.SortStableFunc(n.routes, func(a, b route) int { return b.prefix.Bits() - a.prefix.Bits() })
	return nil
}

// receive handles a packet from a link. The public internet is a router. The inside of a NAT is a
// switch, which does not decrement the TTL.
func (n *Network) receive(now time.Time, p *packet) {
	if n.gateway == nil && !n.in.hop(now, n.name, p, 1) {
		return
	}
	if l := n.find(p.dst.Addr()); l != nil {
		l.down.transmit(now, p)
		return
	}
	if n.gateway != nil {
		n.gateway.leave(now, p)
		return
	}
	n.in.drop(now, n.name, p, DropNoRoute)
}

// find returns the link to an address, or nil.
func (n *Network) find(a netip.Addr) *Link {
	if l := n.byAddr[a]; l != nil {
		return l
	}
	for _, r := range n.routes {
		if r.prefix.Contains(a) {
			return r.link
		}
	}
	return nil
}

// allConns returns the sockets of all hosts on the network and behind it.
func (n *Network) allConns() []*Conn {
	var out []*Conn
	for _, l := range n.links {
		switch end := l.down.to.(type) {
		case *Host:
			for _, c := range end.conns {
				out = append(out, c)
			}
		case *NAT:
			out = append(out, end.inside.allConns()...)
		}
	}
	return out
}
