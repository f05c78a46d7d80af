package underlay

import (
	"fmt"
	"net/netip"
	"time"
)

// Unreachable is an ICMP error that came for a datagram of ours. Anybody can forge one who
// knows our address and port: it may explain a silence, but decides nothing.
type Unreachable struct {
	At time.Time
	// To is where the datagram was to go.
	To netip.AddrPort
	// Reason is one of these: "port unreachable", "host unreachable", "network
	// unreachable", "protocol unreachable", "administratively prohibited", "fragmentation
	// needed (mtu 1280)". The last one hardly comes for IPv4, whose routers cut up what we
	// send.
	Reason string
}

// The reasons of [Unreachable].
const (
	portUnreachable     = "port unreachable"
	hostUnreachable     = "host unreachable"
	networkUnreachable  = "network unreachable"
	protocolUnreachable = "protocol unreachable"
	prohibited          = "administratively prohibited"
	fragmentationNeeded = "fragmentation needed"
)

// icmpError is why a datagram did not arrive.
type icmpError struct {
	reason string // "" if it is none of the above
	mtu    uint32 // bytes, with fragmentationNeeded
}

func (e icmpError) String() string {
	if e.reason == fragmentationNeeded {
		return fmt.Sprintf("%s (mtu %d)", e.reason, e.mtu)
	}
	return e.reason
}

// ofICMP reads an error of RFC 792. All but "destination unreachable" gives none: that the
// TTL was exceeded is what openers of NATs are sent for.
func ofICMP(typ, code uint8, info uint32) icmpError {
	if typ != 3 {
		return icmpError{}
	}
	switch code {
	case 0, 6, 8, 11: // RFC 1122 §3.2.2.1 has those from 6 on.
		return icmpError{reason: networkUnreachable}
	case 1, 5, 7, 12:
		return icmpError{reason: hostUnreachable}
	case 2:
		return icmpError{reason: protocolUnreachable}
	case 3:
		return icmpError{reason: portUnreachable}
	case 4:
		return icmpError{fragmentationNeeded, info}
	case 9, 10, 13: // RFC 1812 §5.2.7.1
		return icmpError{reason: prohibited}
	}
	return icmpError{}
}

// ofICMPv6 reads an error of RFC 4443 §3.1 and §3.2.
func ofICMPv6(typ, code uint8, info uint32) icmpError {
	switch typ {
	case 1:
		switch code {
		case 0, 2:
			return icmpError{reason: networkUnreachable}
		case 3:
			return icmpError{reason: hostUnreachable}
		case 4:
			return icmpError{reason: portUnreachable}
		case 1, 5, 6:
			return icmpError{reason: prohibited}
		}
	case 2:
		return icmpError{fragmentationNeeded, info}
	}
	return icmpError{}
}

// unreachableCame notes an error. Only the very path of a peer has a place of its own: an
// ICMP error is forged with any port at no cost. It is called by whoever uses the socket,
// for whom Bind.Close may be waiting with Bind.mu held: it makes do with the book of paths
// that was fetched last.
func (o *observed) unreachableCame(to netip.AddrPort, e icmpError, now time.Time) {
	if e.reason == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.unreachable.slot(place{addr: to}, o.knowsLocked(to))
	s.at, s.addr, s.value = now, to, e
}
