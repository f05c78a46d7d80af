package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Interface is a network interface of the host and its addresses.
type Interface struct {
	Name  string
	Addrs []netip.Addr
	Up    bool
}

// madeByOthers are the names and, with a final star, prefixes of interfaces created by container
// networks, virtual machines and tunnels. Their addresses cannot be reached from other hosts, or
// only through the tunnel itself.
func madeByOthers() []string {
	return []string{
		"lo",
		"cni*", "flannel*", "cali*", "vxlan.calico", "tunl*", "cilium*", "lxc*", "weave", "weave-*",
		"vethwe*", "veth*", "antrea-*", "ovn-*", "ovs-*", "genev_sys*", "kube-*", "nodelocaldns",
		"docker*", "podman*", "nerdctl*", "virbr*", "liqo*",
		"tun*", "tap*", "wg*", "utun*", "tailscale*", "zt*", "nebula*",
	}
}

// dockerBridge reports whether the name is that of a bridge for a Docker network: br- and 12
// hexadecimal digits. Others, such as a router's br-lan, are real.
func dockerBridge(name string) bool {
	id, found := strings.CutPrefix(name, "br-")
	return found && len(id) == 12 && strings.Trim(id, "0123456789abcdef") == ""
}

// MadeByOthers reports whether an interface's name is typical of container networks, virtual
// machines and tunnels.
func MadeByOthers(name string) bool { return ignoredInterface(name) }

// ignoredInterface reports whether an interface's addresses are never candidates.
func ignoredInterface(name string) bool {
	return dockerBridge(name) || slices.ContainsFunc(madeByOthers(), func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == prefix || open && strings.HasPrefix(name, prefix)
	})
}

// InterfaceAddrs lists this host's addresses that may be candidates.
func InterfaceAddrs() ([]netip.Addr, error) {
	// A node has an interface for each of its pods; their addresses are not read.
	ifs, err := interfaces(func(i net.Interface) bool {
		return i.Flags&net.FlagUp != 0 && !ignoredInterface(i.Name)
	})
	if err != nil {
		return nil, err
	}
	return HostAddrs(ifs), nil
}

// HostAddrs returns the addresses that may be candidates: those of interfaces that are up and not
// created by a container network or tunnel, except loopback, link-local, multicast and overlay
// addresses.
func HostAddrs(ifs []Interface) []netip.Addr {
	var out []netip.Addr
	for _, i := range ifs {
		if !i.Up || ignoredInterface(i.Name) {
			continue
		}
		for _, a := range i.Addrs {
			a = a.Unmap().WithZone("")
			if unusable(a) == "" && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// Link is a network interface that leads outside.
type Link struct {
	Name string
	Up   bool // it is enabled and has a carrier
}

// Links lists this host's interfaces except the loopback and those created by a container network
// or tunnel.
func Links() ([]Link, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var out []Link
	for _, i := range ifs {
		const up = net.FlagUp | net.FlagRunning
		if i.Flags&net.FlagLoopback == 0 && !ignoredInterface(i.Name) {
			out = append(out, Link{i.Name, i.Flags&up == up})
		}
	}
	return out, nil
}

// OwnAddrs lists all addresses of this host, whatever created their interfaces.
func OwnAddrs() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	out := prefixAddrs(addrs)
	for i, a := range out {
		out[i] = a.Unmap().WithZone("")
	}
	return out, nil
}

// interfaces lists this host's interfaces that are wanted. Reading the addresses of one costs a listing of all.
func interfaces(wanted func(net.Interface) bool) ([]Interface, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	out := make([]Interface, 0, len(ifs))
	for _, i := range ifs {
		if !wanted(i) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil { // it has just disappeared
			continue
		}
		out = append(out, Interface{
			Name: i.Name, Addrs: prefixAddrs(addrs),
			Up: i.Flags&net.FlagUp != 0,
		})
	}
	return out, nil
}

func prefixAddrs(addrs []net.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}
