package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

const (
	// resolveAfter is how often names are resolved again. The system's resolver does not return a
	// TTL.
	resolveAfter = time.Minute
	// resolveRetry doubles with each failure up to resolveAfter.
	resolveRetry = 5 * time.Second
)

// name is a configured address: "IP:port" or "host:port".
type name struct {
	text string
	host string // empty if the text has an IP address
	port uint16

	addrs     []netip.Addr // a literal's from the start; sorted
	moved     *moved       // the last change of addrs; nil = never
	resolving bool
	settled   bool
	failures  int // in a row
	err       string
	silent    bool      // the last failure was that no name server answered
	at        time.Time // of the last result
	due       time.Time // of the next resolution
}

// moved is a change of addresses.
type moved struct {
	was []netip.Addr
	at  time.Time
}

// parseName parses "IP:port", "[IPv6]:port" or "host:port".
func parseName(text string) (*name, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return nil, fmt.Errorf("%q is not of the form address:port", text)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("%q: the port must be a number from 1 to 65535", text)
	}
	n := &name{text: text, port: uint16(port)}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr = addr.Unmap(); addr.IsUnspecified() || addr.IsMulticast() || addr.Zone() != "" {
			return nil, fmt.Errorf("%q: %v is not an address that can be reached", text, addr)
		}
		n.addrs, n.settled = []netip.Addr{addr}, true
		return n, nil
	}
	n.host = host
	return n, nil
}

// step reports whether the name is to be resolved now.
func (n *name) step(now time.Time) bool {
	if n.host == "" || n.resolving || now.Before(n.due) {
		return false
	}
	n.resolving = true
	return true
}

// resolved records a result. After a failure the previous addresses stay.
func (n *name) resolved(now time.Time, addrs []netip.Addr, err error) {
	n.resolving, n.settled, n.at = false, true, now
	n.silent = err != nil && !answered(err)
	var fit []netip.Addr
	for _, a := range addrs {
		a = a.Unmap()
		if a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
			fit = append(fit, a)
		}
	}
	switch {
	case err != nil:
		n.err = fmt.Sprintf("resolve %s: %v", n.host, err)
	case len(fit) == 0:
		n.err = fmt.Sprintf("resolve %s: the name has no usable address", n.host)
	default:
		slices.SortFunc(fit, netip.Addr.Compare)
		fit = slices.Compact(fit)
		if len(n.addrs) > 0 && !slices.Equal(n.addrs, fit) {
			n.moved = &moved{n.addrs, now}
		}
		n.addrs, n.err, n.failures = fit, "", 0
		n.due = now.Add(resolveAfter)
		return
	}
	n.due = now.Add(min(resolveRetry<<min(n.failures, 10), resolveAfter))
	n.failures++
}

// answered reports whether a name server has answered with an error: there is no such name, or the
// server cannot or will not answer. Package net expresses that only in the message.
func answered(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && (e.IsNotFound || e.Err == "server misbehaving")
}

// addrPorts returns the name's addresses with its port.
func (n *name) addrPorts() []netip.AddrPort {
	out := make([]netip.AddrPort, len(n.addrs))
	for i, a := range n.addrs {
		out[i] = netip.AddrPortFrom(a, n.port)
	}
	return out
}
