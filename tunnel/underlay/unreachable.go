package underlay

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// Unreachable is why a datagram of ours did not get to its destination, as this machine or an
// ICMP error says. Anybody can forge the latter who knows our address and port: it may explain
// a silence, but decides nothing.
type Unreachable struct {
	At time.Time
	// To is where the datagram was to go.
	To netip.AddrPort
	// Here says that this machine did not send it. By is who sent the ICMP error otherwise: a
	// router, a host, or this machine where the next hop does not answer. It is invalid where
	// that is not known.
	Here bool
	By   netip.Addr
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
	reason string     // "" if it is none of the above
	mtu    uint32     // bytes, with fragmentationNeeded
	here   bool       // the call that was to send it failed
	by     netip.Addr // who sent the ICMP error
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
		return icmpError{reason: fragmentationNeeded, mtu: info}
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
		return icmpError{reason: fragmentationNeeded, mtu: info}
	}
	return icmpError{}
}

// ofSend reads the error of a call that was to send. Linux has EPERM of a firewall that drops
// what goes out, EACCES of a route that prohibits and EINVAL of one that is a black hole (for
// a source address that went away, the call was made again).
func ofSend(err error) icmpError {
	for reason, errnos := range map[string][]syscall.Errno{
		networkUnreachable: {syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.EINVAL},
		hostUnreachable:    {syscall.EHOSTUNREACH, syscall.EHOSTDOWN},
		prohibited:         {syscall.EPERM, syscall.EACCES},
	} {
		for _, errno := range errnos {
			if errors.Is(err, errno) {
				return icmpError{reason: reason, here: true}
			}
		}
	}
	return icmpError{}
}

// noteSend notes a call that could not send to an endpoint.
func (b *Bind) noteSend(ep conn.Endpoint, err error) {
	if to := addrOf(ep); err != nil && to.IsValid() {
		b.observed.unreachableCame(to, ofSend(err), time.Now())
	}
}

// Unreachable gives why datagrams did not arrive, the last one of each destination, as
// [Observations] have it.
func (b *Bind) Unreachable() []Unreachable {
	b.observed.lock()
	defer b.observed.mu.Unlock()
	return b.observed.unreachableLocked()
}

func (o *observed) unreachableLocked() (out []Unreachable) {
	for _, s := range sorted(&o.unreachable) {
		out = append(out, Unreachable{At: s.at, To: s.addr, Here: s.value.here, By: s.value.by, Reason: s.value.String()})
	}
	return out
}

// leaves notes that this machine does send to an address, in case it did not before.
func (o *observed) leaves(to netip.AddrPort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, known := range []bool{true, false} { // It may have become a peer's since.
		if s := o.unreachable.find(place{addr: to}, known); s != nil && s.value.here {
			s.at = time.Time{}
		}
	}
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
