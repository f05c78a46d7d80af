package underlay

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// Unreachable is why a datagram of ours was not delivered, according to this host or an ICMP error.
// Anyone who knows our address and port can forge the latter, so it may explain a silence, but
// decides nothing.
type Unreachable struct {
	At time.Time
	// To is the datagram's destination.
	To netip.AddrPort
	// Here says that this host did not send it. Otherwise By is the sender of the ICMP error: a
	// router, a host, or this host if the next hop does not answer. It is invalid if unknown.
	Here bool
	By   netip.Addr
	// Reason is one of "port unreachable", "host unreachable", "network unreachable", "protocol
	// unreachable", "administratively prohibited", "no buffer space" and "fragmentation needed (mtu
	// 1280)". The last is rare for IPv4, since routers fragment what we send.
	Reason string
}

// The reasons of [Unreachable].
const (
	portUnreachable     = "port unreachable"
	hostUnreachable     = "host unreachable"
	networkUnreachable  = "network unreachable"
	protocolUnreachable = "protocol unreachable"
	prohibited          = "administratively prohibited"
	noBuffers           = "no buffer space"
	fragmentationNeeded = "fragmentation needed"
)

// icmpError is why a datagram was not delivered.
type icmpError struct {
	reason string     // "" if it is none of the above
	mtu    uint32     // bytes, with fragmentationNeeded
	here   bool       // the send call failed
	by     netip.Addr // the sender of the ICMP error
	since  time.Time  // the first send call that failed, with here
}

func (e icmpError) String() string {
	if e.reason == fragmentationNeeded {
		return fmt.Sprintf("%s (mtu %d)", e.reason, e.mtu)
	}
	return e.reason
}

// ofICMP reads an error of RFC 792. Everything but "destination unreachable" is ignored: packets
// that open NATs are meant to exceed their TTL.
func ofICMP(typ, code uint8, info uint32) icmpError {
	if typ != 3 {
		return icmpError{}
	}
	switch code {
	case 0, 6, 8, 11: // RFC 1122 §3.2.2.1 defines those from 6 on
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

// ofSend reads the error of a send call. Linux returns EPERM for a firewall that drops outgoing
// packets or a full connection table, EACCES for a prohibited route and EINVAL for a black hole (if
// the source address was lost, the call was repeated).
func ofSend(err error) icmpError {
	for reason, errnos := range map[string][]syscall.Errno{
		networkUnreachable: {syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.EINVAL},
		hostUnreachable:    {syscall.EHOSTUNREACH, syscall.EHOSTDOWN},
		prohibited:         {syscall.EPERM, syscall.EACCES},
		noBuffers:          {syscall.ENOBUFS, syscall.ENOMEM},
	} {
		for _, errno := range errnos {
			if errors.Is(err, errno) {
				return icmpError{reason: reason, here: true}
			}
		}
	}
	return icmpError{}
}

// noteSend notes the result of a send to an endpoint. Successes only matter after failures.
func (b *Bind) noteSend(ep conn.Endpoint, err error) {
	if err == nil && !b.observed.hasRefused.Load() {
		return
	}
	switch to := addrOf(ep); {
	case !to.IsValid():
	case err == nil:
		b.observed.sent(to, time.Now())
	default:
		b.observed.unreachableCame(to, ofSend(err), time.Now())
	}
}

// refusesSome is how long this host may refuse all that is sent to an address before that counts as
// an outage, as when a link is down or not up yet. WireGuard and probes send again within 5 s.
const refusesSome = 6 * time.Second

// Refusals are the sends that this host refused although it sent to the same address within
// refusesSome: it refuses only some of what is sent.
type Refusals struct {
	Count uint64 // since the Bind was created
	// Reason is that of the last one, as in [Unreachable]; empty for none.
	Reason string
}

// Refusals returns the sends that this host refused now and then.
func (b *Bind) Refusals() Refusals {
	b.observed.mu.Lock()
	defer b.observed.mu.Unlock()
	return b.observed.passing
}

// Unreachable returns why datagrams were not delivered, the latest for each destination, as in
// [Observations].
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

// sent notes that this host can send to an address, in case it could not before.
func (o *observed) sent(to netip.AddrPort, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, known := range []bool{true, false} { // it may have become a peer's since
		if s := o.unreachable.find(place{addr: to}, known); s != nil && s.value.here && !s.at.IsZero() {
			if now.Sub(s.value.since) < refusesSome {
				o.passing.Count++
				o.passing.Reason = s.value.reason
			}
			s.at = time.Time{}
		}
	}
}

// unreachableCame notes an error. Only the exact path of a peer has its own slot: forging an ICMP
// error for any port costs nothing. It is called by users of the socket while Bind.Close may be
// waiting for them with Bind.mu held, so it uses the latest book of paths that was fetched.
func (o *observed) unreachableCame(to netip.AddrPort, e icmpError, now time.Time) {
	if e.reason == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.unreachable.slot(place{addr: to}, o.knowsLocked(to))
	if e.here {
		e.since = now
		if s.value.here && !s.at.IsZero() {
			e.since = s.value.since
		}
		o.hasRefused.Store(true)
	}
	s.at, s.addr, s.value = now, to, e
}
