package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
)

// Network is this host's network, outside the tunnel. nil fields mean the system's.
type Network struct {
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Egress connects to the outside through a proxy, which resolves names; nil for none.
	Egress Egress
}

// Egress opens connections to the outside.
type Egress interface {
	// Proxied reports whether a connection to host:port uses a proxy.
	Proxied(address string) bool
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

func (n Network) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if n.Lookup != nil {
		return n.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func (n Network) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if n.Dial != nil {
		return n.Dial(ctx, to)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
}

// reach resolves a host and connects to it: stages dns, unless the host is an address, and tcp.
// remote is the address that answered, or the preferred one; stage is where it failed.
func (r *recorder) reach(ctx context.Context, n Network, host string, port uint16) (c net.Conn, remote, stage string, err error) {
	addrs, err := n.lookup(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("%s has no address", host)
	}
	if err != nil {
		return nil, "", StageDNS, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		r.passed(StageDNS, join(addrs))
	}
	c, to, err := n.dialAny(ctx, addrs, port)
	if err != nil {
		return nil, to.String(), StageTCP, err
	}
	r.passed(StageTCP, to.String())
	return c, to.String(), "", nil
}

// dialAny connects to the first address that answers, with a fair share of the time for each. If
// none does, it returns the first one's error, which is the preferred one.
func (n Network) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, netip.AddrPort, error) {
	var first error
	var preferred netip.AddrPort
	for i, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), port)
		c, err := n.dialPart(ctx, to, len(addrs)-i)
		if err == nil {
			return c, to, nil
		}
		if first == nil {
			first, preferred = err, to
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, preferred, first
}

func (n Network) dialPart(ctx context.Context, to netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return n.dial(ctx, to)
}

func join(addrs []netip.Addr) string {
	var s []string
	for _, a := range addrs {
		s = append(s, a.Unmap().String())
	}
	return catalogue.List(s)
}
