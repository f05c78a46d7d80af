package lan

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Family is a way to send on an interface.
type Family int

// The families.
const (
	IPv4 Family = iota
	IPv6
	families = 2
)

func (f Family) String() string { return [families]string{"IPv4", "IPv6"}[f] }

// group is the address of multicast DNS (RFC 6762 §3).
func (f Family) group() netip.AddrPort {
	if f == IPv4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{224, 0, 0, 251}), mdnsPort)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 0xfb}), mdnsPort)
}

const mdnsPort = 5353

// maxAddresses limits the announced addresses of an interface and the stored addresses of a
// gateway, for each family.
const maxAddresses = 8

// Interface is a network interface on which to look for gateways.
type Interface struct {
	Index int
	Name  string
	// Prefixes are its addresses, each with the length of its network.
	Prefixes []netip.Prefix
	// Unfit says why it is not used; empty if it is.
	Unfit string
}

// Conn exchanges messages of one family on one interface. ReadFrom is called by one goroutine,
// the other methods by any; Close ends a ReadFrom.
type Conn interface {
	// ReadFrom returns the next message to the group.
	ReadFrom(b []byte) (n int, from netip.AddrPort, err error)
	// Multicast sends to the group, WriteTo to one address.
	Multicast(b []byte) error
	WriteTo(b []byte, to netip.AddrPort) error
	Close() error
}

// has reports whether the interface has addresses of the family.
func (i Interface) has(f Family) bool {
	return slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == (f == IPv4) })
}

// announceable returns the addresses that peers may be told: not link-local ones, which mean
// nothing without an interface, and not those of the overlay.
func (i Interface) announceable() []netip.Addr {
	var out []netip.Addr
	var count [families]int
	for _, p := range i.Prefixes {
		a, f := p.Addr(), familyOf(p.Addr())
		if !a.IsGlobalUnicast() || peer.OverlayPrefix.Contains(a) || count[f] == maxAddresses || slices.Contains(out, a) {
			continue
		}
		count[f]++
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// onLink reports whether an address is in a network of the interface.
func (i Interface) onLink(a netip.Addr) bool {
	return slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// SystemInterfaces lists the interfaces of this host, with the reason if one is unfit: down,
// without multicast or addresses, loopback or point-to-point. Without names it leaves out those
// for which leave returns true. With names it leaves out all others, and lists a name without an
// interface as unfit.
func SystemInterfaces(names []string, leave func(name string) bool) ([]Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var out []Interface
	for _, i := range list {
		chosen := slices.Contains(names, i.Name)
		if len(names) > 0 && !chosen || i.Flags&net.FlagLoopback != 0 && !chosen {
			continue
		}
		x := Interface{Index: i.Index, Name: i.Name, Unfit: unfit(i.Flags)}
		if !chosen && leave != nil && leave(i.Name) {
			x.Unfit = "of a container network, a virtual machine or a tunnel"
		}
		if x.Unfit == "" {
			addrs, err := i.Addrs()
			if err != nil { // it has just disappeared
				continue
			}
			x.Prefixes = prefixes(addrs)
			if len(x.Prefixes) == 0 {
				x.Unfit = "has no address"
			}
		}
		out = append(out, x)
	}
	for n, name := range names {
		if !slices.ContainsFunc(list, func(i net.Interface) bool { return i.Name == name }) {
			out = append(out, Interface{Index: -1 - n, Name: name, Unfit: "there is no such interface"})
		}
	}
	slices.SortFunc(out, func(a, b Interface) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func unfit(f net.Flags) string {
	switch {
	case f&net.FlagLoopback != 0:
		return "loopback"
	case f&net.FlagUp == 0:
		return "down"
	case f&net.FlagPointToPoint != 0:
		return "point-to-point"
	case f&net.FlagMulticast == 0:
		return "does not do multicast"
	case f&net.FlagRunning == 0:
		return "has no carrier"
	}
	return ""
}

func prefixes(addrs []net.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, netip.PrefixFrom(p.Addr().Unmap().WithZone(""), p.Bits()))
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return out
}
