package simnet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// NATOptions configure a NAT.
type NATOptions struct {
	Name string
	// Network is the network of the NAT's outside; nil means the public internet. The inside of
	// another NAT makes that a carrier-grade one.
	Network *Network
	// Addrs are its outside addresses. Without an address of a family, its datagrams are dropped
	// unless Routed.
	Addrs     []netip.Addr
	Behaviour Behaviour
	// Routed are inside prefixes that pass untranslated in both directions, as a site's IPv6
	// does. A stateful Firewall on the link can protect them.
	Routed []netip.Prefix
	Link   LinkOptions
}

// NAT is a network address translator or, if it only has Routed prefixes, a plain router.
type NAT struct {
	in     *Internet
	name   string
	inside *Network
	outer  *Network
	link   *Link
	model  *translator
	routed []netip.Prefix
}

// AddNAT creates a NAT with an empty network behind it.
func (in *Internet) AddNAT(o NATOptions) (*NAT, error) {
	addrs := []netip.Addr{}
	if len(o.Addrs) > 0 || len(o.Routed) == 0 {
		var err error
		if addrs, err = checkAddrs(o.Name, o.Addrs); err != nil {
			return nil, err
		}
	}
	b, err := o.Behaviour.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("NAT %s: %w", o.Name, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	n := &NAT{in: in, name: o.Name, outer: o.Network, routed: slices.Clone(o.Routed)}
	if n.outer == nil {
		n.outer = in.public
	}
	n.inside = newNetwork(in, o.Name, n)
	n.model = newTranslator(b, newDice(in.seed, o.Name), addrs)
	if n.link, err = newLink(in, o.Name, o.Link, n, n.outer); err != nil {
		return nil, fmt.Errorf("NAT %s: %w", o.Name, err)
	}
	if err := in.claimLocked(o.Name); err != nil {
		return nil, err
	}
	if err := n.outer.attachLocked(n.link, addrs, n.routed); err != nil {
		delete(in.names, o.Name)
		return nil, err
	}
	return n, nil
}

// Name returns the NAT's name.
func (n *NAT) Name() string { return n.name }

// Inside returns the network behind the NAT.
func (n *NAT) Inside() *Network { return n.inside }

// Link returns the link of the NAT's outside.
func (n *NAT) Link() *Link { return n.link }

// Addrs returns the outside addresses.
func (n *NAT) Addrs() []netip.Addr {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	return slices.Clone(n.model.outside)
}

// Reboot drops all mappings and strays. Port forwards remain.
func (n *NAT) Reboot() {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	n.model.reboot()
}

// SetAddrs changes the outside addresses, as some providers do every night: all mappings are
// lost, and port forwards of addresses that the NAT no longer has.
func (n *NAT) SetAddrs(addrs ...netip.Addr) error {
	addrs, err := checkAddrs(n.name, addrs)
	if err != nil {
		return err
	}
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	if err := n.outer.attachLocked(n.link, addrs, nil); err != nil {
		return err
	}
	for _, m := range n.model.forwards() {
		if !slices.Contains(addrs, m.outside.Addr()) {
			n.model.remove(m)
		}
	}
	n.model.outside = addrs
	n.model.reboot()
	return nil
}

// Forward forwards an outside port to an inside endpoint, for all remotes. What the endpoint
// sends leaves from that port.
func (n *NAT) Forward(port uint16, to netip.AddrPort) error {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	addr := n.model.outsideFor(to.Addr())
	if !addr.IsValid() || port == 0 || to.Port() == 0 {
		return fmt.Errorf("%w: NAT %s cannot forward port %d to %v", ErrAddress, n.name, port, to)
	}
	n.model.forward(netip.AddrPortFrom(addr, port), to)
	return nil
}

// Unforward removes the port forwards of a port.
func (n *NAT) Unforward(port uint16) {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	for _, a := range n.model.outside {
		n.model.unforward(netip.AddrPortFrom(a, port))
	}
}

func (n *NAT) isRouted(a netip.Addr) bool {
	return slices.ContainsFunc(n.routed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// leave handles a packet from the inside to another network.
func (n *NAT) leave(now time.Time, p *packet) {
	if slices.Contains(n.model.outside, p.dst.Addr()) {
		n.hairpin(now, p)
		return
	}
	// Forwarding decrements the TTL before conntrack confirms a mapping: a datagram that is
	// dropped here leaves no mapping.
	if !n.in.hop(now, n.name, p, 1) {
		return
	}
	if !n.isRouted(p.src.Addr()) {
		src, reason := n.model.outbound(now, p.src, p.dst)
		if reason != "" {
			n.in.drop(now, n.name, p, reason)
			return
		}
		p.src = src
		n.in.trace.add(now, Translated, n.name, p, "")
	}
	n.link.up.transmit(now, p)
}

// receive handles a packet from the outside.
func (n *NAT) receive(now time.Time, p *packet) {
	if n.isRouted(p.dst.Addr()) {
		if n.in.hop(now, n.name, p, 1) {
			n.enter(now, p)
		}
		return
	}
	if !slices.Contains(n.model.outside, p.dst.Addr()) { // the address has changed in the meantime
		n.in.drop(now, n.name, p, DropNoRoute)
		return
	}
	n.translateIn(now, p)
}

// hairpin handles a packet from the inside to an outside address.
func (n *NAT) hairpin(now time.Time, p *packet) {
	if !n.model.Hairpin {
		n.in.drop(now, n.name, p, DropHairpin)
		return
	}
	src, reason := n.model.outbound(now, p.src, p.dst)
	if reason != "" {
		n.in.drop(now, n.name, p, reason)
		return
	}
	p.src = src
	n.translateIn(now, p)
}

func (n *NAT) translateIn(now time.Time, p *packet) {
	inside, reason := n.model.inbound(now, p.src, p.dst)
	switch {
	case reason == DropStray:
		n.in.refuse(now, n.name, p, reason, ICMP{Kind: PortUnreachable, By: p.dst.Addr()})
	case reason != "":
		n.in.drop(now, n.name, p, reason)
	case n.in.hop(now, n.name, p, 1):
		p.dst = inside
		n.in.trace.add(now, Translated, n.name, p, "")
		n.enter(now, p)
	}
}

// enter sends a packet to an inside host.
func (n *NAT) enter(now time.Time, p *packet) {
	l := n.inside.find(p.dst.Addr())
	if l == nil {
		n.in.drop(now, n.name, p, DropNoRoute)
		return
	}
	l.down.transmit(now, p)
}
