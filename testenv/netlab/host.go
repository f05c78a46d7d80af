//go:build linux

package netlab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Host is a machine of the lab: a network namespace. File system and users are the test's. Its
// methods are safe for concurrent use.
type Host struct {
	lab       *Lab
	name      string
	namespace string

	mu       sync.Mutex
	tables   int                 // nftables tables made so far, to name them
	networks map[string]*Network // by interface
	router   netip.Addr          // of the default route
}

// Name returns the host's name within the lab.
func (h *Host) Name() string { return h.name }

// Namespace returns the name of the host's network namespace, for `ip netns`.
func (h *Host) Namespace() string { return h.namespace }

// Attach connects the host to a network with an interface of that name and an address in the
// network's prefix.
func (h *Host) Attach(iface string, n *Network, addr netip.Addr) {
	h.lab.t.Helper()
	if !n.prefix.Contains(addr) {
		h.lab.t.Fatalf("netlab: %s is outside %s of network %s", addr, n.prefix, n.host.name)
	}
	port := n.port()
	l := h.lab
	// Both ends are created in their namespaces, so their names only need to be unique there.
	mtu := fmt.Sprint(n.mtu)
	l.must("ip", "link", "add", iface, "mtu", mtu, "netns", h.namespace, "type", "veth", "peer", "name", port, "mtu", mtu, "netns", n.host.namespace)
	l.must("ip", "-n", n.host.namespace, "link", "set", port, "master", "br0", "up")
	h.AddAddress(iface, netip.PrefixFrom(addr, n.prefix.Bits()))
	l.must("ip", "-n", h.namespace, "link", "set", iface, "up")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.networks[iface] = n
}

// ChangeAddress replaces all addresses of an interface by another of its network, as DHCP or a
// provider does. The default route stays.
func (h *Host) ChangeAddress(iface string, addr netip.Addr) {
	h.lab.t.Helper()
	h.mu.Lock()
	n, router := h.networks[iface], h.router
	h.mu.Unlock()
	if n == nil || !n.prefix.Contains(addr) {
		h.lab.t.Fatalf("netlab: %s cannot have %s on %s", h.name, addr, iface)
	}
	h.lab.must("ip", "-n", h.namespace, "address", "flush", "dev", iface)
	h.AddAddress(iface, netip.PrefixFrom(addr, n.prefix.Bits()))
	if router.IsValid() { // the kernel removed the route with the address
		h.DefaultRoute(router)
	}
}

// tableName returns the name of a new nftables table of the host.
func (h *Host) tableName(what string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tables++
	return fmt.Sprintf("%s%d", what, h.tables)
}

// AddAddress adds an address to an interface.
func (h *Host) AddAddress(iface string, addr netip.Prefix) {
	h.lab.t.Helper()
	args := []string{"ip", "-n", h.namespace, "address", "add", addr.String(), "dev", iface}
	if addr.Addr().Is6() {
		args = append(args, "nodad") // otherwise the address is unusable for a second
	}
	h.lab.must(args...)
}

// DefaultRoute routes everything that is not on a network of the host to a router.
func (h *Host) DefaultRoute(via netip.Addr) {
	h.lab.t.Helper()
	h.lab.must("ip", "-n", h.namespace, "route", "replace", "default", "via", via.String())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.router = via
}

// Route routes a prefix to a router.
func (h *Host) Route(to netip.Prefix, via netip.Addr) {
	h.lab.t.Helper()
	h.lab.must("ip", "-n", h.namespace, "route", "replace", to.String(), "via", via.String())
}

// Sysctl sets a network sysctl of this host only, such as "net.ipv4.ip_forward".
func (h *Host) Sysctl(name, value string) {
	h.lab.t.Helper()
	h.mustRun("", "sysctl", "-qw", name+"="+value)
}

// Run runs a program on the host and returns its output.
func (h *Host) Run(ctx context.Context, args ...string) (string, error) {
	out, err := Run(ctx, h.namespace, "", args...)
	if err != nil {
		return out, fmt.Errorf("on %s: %w", h.name, err)
	}
	return out, nil
}

// Start starts a program on the host and kills it when the test ends; c.Namespace is ignored. If
// the test has failed by then, the end of its output is logged.
func (h *Host) Start(c Command) *Process {
	t := h.lab.t
	t.Helper()
	c.Namespace = h.namespace
	p, err := Start(c)
	if err != nil {
		t.Fatalf("netlab: on %s: %v", h.name, err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s on %s: %v%s", strings.Join(c.Args, " "), h.name, p.cmd.ProcessState, p.tail())
		}
	})
	return p
}

// ListenUDP opens a UDP socket on the host.
func (h *Host) ListenUDP(addr netip.AddrPort) (*net.UDPConn, error) {
	var c *net.UDPConn
	err := Do(h.namespace, func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("on %s: %w", h.name, err)
	}
	return c, nil
}

// Listen opens a TCP listener on the host.
func (h *Host) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var l net.Listener
	err := Do(h.namespace, func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", addr.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("on %s: %w", h.name, err)
	}
	return l, nil
}

// DialContext connects from the host. It has the signature that net/http needs. The address must
// be an IP address and port, because a name lookup could leave the namespace.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return DialContext(ctx, h.namespace, network, address)
}

// DialContext connects from a network namespace to an IP address and port.
func DialContext(ctx context.Context, namespace, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from namespace %s: %w", namespace, err)
	}
	var c net.Conn
	err := Do(namespace, func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// mustRun runs a command that builds the host, and fails the test on an error.
func (h *Host) mustRun(stdin string, args ...string) {
	h.lab.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if _, err := Run(ctx, h.namespace, stdin, args...); err != nil {
		h.lab.t.Fatalf("netlab: on %s: %v", h.name, err)
	}
}
