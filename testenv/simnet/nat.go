package simnet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// NATOptions describe a NAT.
type NATOptions struct {
	Name string
	// Network is what the NAT's outside is attached to; nil = the public internet.
	// The inside of another NAT makes it a carrier-grade one.
	Network *Network
	// Addrs are its outside addresses. A family without any is not translated: its
	// datagrams are dropped unless Routed.
	Addrs     []netip.Addr
	Behaviour Behaviour
	// Routed are inside prefixes that pass untranslated both ways, as a site's IPv6
	// does; put a stateful Firewall on the link to protect them.
	Routed []netip.Prefix
	Link   LinkOptions
}

// NAT is a network address translator, or with nothing but Routed a plain router.
type NAT struct {
	in     *Internet
	name   string
	inside *Network
	outer  *Network
	link   *Link
	model  *translator
	routed []netip.Prefix
}

// AddNAT makes a NAT with an empty network behind it.
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

// Name is the NAT's name.
func (n *NAT) Name() string { return n.name }

// Inside is the network behind the NAT.
func (n *NAT) Inside() *Network { return n.inside }

// Link is the link of the NAT's outside.
func (n *NAT) Link() *Link { return n.link }

// Addrs are the outside addresses.
func (n *NAT) Addrs() []netip.Addr {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	return slices.Clone(n.model.outside)
}

// Reboot forgets all mappings and strays. Port forwards stay.
func (n *NAT) Reboot() {
	n.in.mu.Lock()
	defer n.in.mu.Unlock()
	n.model.reboot()
}

// SetAddrs changes the outside addresses, as a provider does overnight: all mappings
// are lost, and port forwards of addresses that are gone with them.
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

// Forward binds an outside port to an inside endpoint: whatever arrives there goes in,
// and what the endpoint sends leaves from that port.
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

// Unforward ends the port forwards of a port.
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

// leave takes a packet from the inside that is for somewhere else.
func (n *NAT) leave(now time.Time, p *packet) {
	if slices.Contains(n.model.outside, p.dst.Addr()) {
		n.hairpin(now, p)
		return
	}
	// Forwarding takes from the TTL before conntrack confirms a mapping: a datagram
	// that ends here leaves no mapping.
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

// receive takes a packet from the outside.
func (n *NAT) receive(now time.Time, p *packet) {
	if n.isRouted(p.dst.Addr()) {
		if n.in.hop(now, n.name, p, 1) {
			n.enter(now, p)
		}
		return
	}
	if !slices.Contains(n.model.outside, p.dst.Addr()) { // The address was changed meanwhile.
		n.in.drop(now, n.name, p, DropNoRoute)
		return
	}
	n.translateIn(now, p)
}

// hairpin turns a packet from the inside round that is for an outside address.
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
