package simnet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// HostOptions configure a host.
type HostOptions struct {
	Name string
	// Network is the network that the host is attached to; nil means the public internet.
	Network *Network
	Addrs   []netip.Addr
	Link    LinkOptions
	// ReceiveBuffer bounds the unread datagrams in a socket, in bytes of payload; 0 means 4 MiB.
	ReceiveBuffer int
}

const defaultReceiveBuffer = 4 << 20 // bytes

// Host has addresses and UDP sockets.
type Host struct {
	in            *Internet
	name          string
	receiveBuffer int
	ifaces        []*Interface // the first with a route wins
	conns         map[netip.AddrPort]*Conn
	nextPort      uint16 // for sockets without an explicit port
}

// Interface attaches a host to a network.
type Interface struct {
	host    *Host
	network *Network
	link    *Link
	addrs   []netip.Addr
}

// firstEphemeralPort is IANA's first dynamic port (RFC 6335 §6).
const firstEphemeralPort = 49152

// AddHost creates a host with one interface.
func (in *Internet) AddHost(o HostOptions) (*Host, error) {
	if o.ReceiveBuffer <= 0 {
		o.ReceiveBuffer = defaultReceiveBuffer
	}
	h := &Host{
		in: in, name: o.Name, receiveBuffer: o.ReceiveBuffer,
		conns: make(map[netip.AddrPort]*Conn), nextPort: firstEphemeralPort,
	}
	if _, err := h.AddInterface(o.Name, o.Network, o.Addrs, o.Link); err != nil {
		return nil, err
	}
	return h, nil
}

// AddInterface attaches the host to another network (nil means the public internet) by a link of
// that name. Datagrams to an address on an interface's own network leave there, all others
// through the first interface with an address of the family.
func (h *Host) AddInterface(name string, network *Network, addrs []netip.Addr, o LinkOptions) (*Interface, error) {
	addrs, err := checkAddrs(name, addrs)
	if err != nil {
		return nil, err
	}
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	if network == nil {
		network = h.in.public
	}
	l, err := newLink(h.in, name, o, h, network)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.name, err)
	}
	if err := h.in.claimLocked(name); err != nil {
		return nil, err
	}
	if err := network.attachLocked(l, addrs, nil); err != nil {
		delete(h.in.names, name)
		return nil, err
	}
	i := &Interface{host: h, network: network, link: l, addrs: addrs}
	h.ifaces = append(h.ifaces, i)
	return i, nil
}

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// Link returns the link of the first interface.
func (h *Host) Link() *Link { return h.ifaces[0].link }

// Addrs returns the addresses of all interfaces.
func (h *Host) Addrs() []netip.Addr {
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	var out []netip.Addr
	for _, i := range h.ifaces {
		out = append(out, i.addrs...)
	}
	return out
}

// SetAddrs changes the addresses of the first interface.
func (h *Host) SetAddrs(addrs ...netip.Addr) error { return h.ifaces[0].SetAddrs(addrs...) }

// Link returns the interface's link.
func (i *Interface) Link() *Link { return i.link }

// SetAddrs changes the interface's addresses. Datagrams in flight to an old one are lost.
func (i *Interface) SetAddrs(addrs ...netip.Addr) error {
	addrs, err := checkAddrs(i.link.name, addrs)
	if err != nil {
		return err
	}
	i.host.in.mu.Lock()
	defer i.host.in.mu.Unlock()
	if err := i.network.attachLocked(i.link, addrs, nil); err != nil {
		return err
	}
	i.addrs = addrs
	return nil
}

// addrFor returns the interface's source address, invalid if it has none of the family.
func (i *Interface) addrFor(dst netip.Addr) netip.Addr {
	for _, a := range i.addrs {
		if a.Is4() == dst.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// routeLocked returns the interface and the source address for a destination. A socket that is
// bound to an address sends from there.
func (h *Host) routeLocked(dst, bound netip.Addr) (*Interface, netip.Addr) {
	var first *Interface
	var src netip.Addr
	for _, i := range h.ifaces {
		a := i.addrFor(dst)
		if bound.IsValid() {
			if !slices.Contains(i.addrs, bound) || bound.Is4() != dst.Is4() {
				continue
			}
			a = bound
		}
		if !a.IsValid() {
			continue
		}
		if i.network.byAddr[dst] != nil {
			return i, a
		}
		if first == nil {
			first, src = i, a
		}
	}
	return first, src
}

func (h *Host) ownsLocked(a netip.Addr) bool {
	return slices.ContainsFunc(h.ifaces, func(i *Interface) bool { return slices.Contains(i.addrs, a) })
}

// receive handles an arriving packet.
func (h *Host) receive(now time.Time, p *packet) {
	if !h.ownsLocked(p.dst.Addr()) { // the address has changed in the meantime
		h.in.drop(now, h.name, p, DropNoRoute)
		return
	}
	c := h.conns[p.dst]
	if c == nil {
		c = h.conns[netip.AddrPortFrom(netip.Addr{}, p.dst.Port())]
	}
	if c == nil {
		h.in.refuse(now, h.name, p, DropPortClosed, ICMP{Kind: PortUnreachable, By: p.dst.Addr()})
		return
	}
	e := *p // the reader may release the packet before it is traced
	if !c.enqueue(p) {
		h.in.drop(now, h.name, p, DropReceiveBuffer)
		return
	}
	h.in.trace.add(now, Delivered, h.name, &e, "")
}

// ListenUDP opens a socket on all present and future addresses; port 0 means any free one.
func (h *Host) ListenUDP(port uint16) (*Conn, error) {
	return h.ListenAddrPort(netip.AddrPortFrom(netip.Addr{}, port))
}

// ListenAddrPort opens a socket on one of the host's addresses, or on all of them if the address
// is invalid or unspecified.
func (h *Host) ListenAddrPort(at netip.AddrPort) (*Conn, error) {
	addr := at.Addr().Unmap()
	if addr.IsValid() && addr.IsUnspecified() {
		addr = netip.Addr{}
	}
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	if h.in.closed {
		return nil, fmt.Errorf("host %s listens: %w", h.name, errClosed)
	}
	if addr.IsValid() && !h.ownsLocked(addr) {
		return nil, fmt.Errorf("%w: host %s has no %v", ErrAddress, h.name, addr)
	}
	port := at.Port()
	if port == 0 {
		if port = h.freePortLocked(); port == 0 {
			return nil, fmt.Errorf("host %s: every port: %w", h.name, ErrPortInUse)
		}
	}
	key := netip.AddrPortFrom(addr, port)
	if h.portTakenLocked(key) {
		return nil, fmt.Errorf("host %s: port %d: %w", h.name, port, ErrPortInUse)
	}
	c := newConn(h, key)
	h.conns[key] = c
	return c, nil
}

// portTakenLocked reports whether a socket conflicts with another: same port, and same address or
// either on all addresses.
func (h *Host) portTakenLocked(key netip.AddrPort) bool {
	for k := range h.conns {
		if k.Port() == key.Port() && (k.Addr() == key.Addr() || !k.Addr().IsValid() || !key.Addr().IsValid()) {
			return true
		}
	}
	return false
}

func (h *Host) freePortLocked() uint16 {
	const span = 65536 - firstEphemeralPort
	for range span {
		port := h.nextPort
		h.nextPort = firstEphemeralPort + uint16((int(port)+1-firstEphemeralPort)%span)
		if !h.portTakenLocked(netip.AddrPortFrom(netip.Addr{}, port)) {
			return port
		}
	}
	return 0
}
