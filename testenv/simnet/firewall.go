package simnet

import (
	"net/netip"
	"slices"
	"time"
)

// Firewall is a link's firewall, seen from the host or NAT at the link's end: out is traffic that
// this end sends. The zero value passes everything.
type Firewall struct {
	// DropOut and DropIn drop everything in that direction.
	DropOut, DropIn bool
	// Stateful only lets in replies to outbound traffic: same addresses and ports, within Timeout
	// of the flow's last datagram (0 means 120 s).
	Stateful bool
	Timeout  time.Duration
	// AllowPorts are destination ports that are let in regardless of DropIn and Stateful.
	AllowPorts []uint16
	// Drop drops datagrams for which it returns true, in either direction. It must not block,
	// call into the package, or keep the payload.
	Drop func(d Datagram, out bool) bool
	// Reject is what the sender of a dropped datagram receives; nil means nothing.
	Reject *Rejection
}

// Rejection is a firewall's response.
type Rejection struct {
	Kind ICMPKind
	By   netip.Addr // the firewall's own address
}

// Datagram is a datagram in flight, as firewalls and taps see it.
type Datagram struct {
	ID       uint64 // constant over the whole path, also through NATs
	Src, Dst netip.AddrPort
	TTL      uint8
	Payload  []byte
}

// firewall is the model of an active [Firewall]. It has no clock.
type firewall struct {
	Firewall
	flows map[flow]time.Time // by inside and remote endpoint: the time of expiry
	swept time.Time
}

type flow struct {
	inside, remote netip.AddrPort
}

func newFirewall(rules Firewall) *firewall {
	rules.AllowPorts = slices.Clone(rules.AllowPorts)
	if rules.Timeout == 0 {
		rules.Timeout = defaultTimeout
	}
	return &firewall{Firewall: rules, flows: make(map[flow]time.Time)}
}

func (f *firewall) passes(now time.Time, d Datagram, out bool) bool {
	if f.Drop != nil && f.Drop(d, out) {
		return false
	}
	if out {
		return f.passesOut(now, d)
	}
	if slices.Contains(f.AllowPorts, d.Dst.Port()) {
		return true
	}
	if f.DropIn {
		return false
	}
	return !f.Stateful || f.answers(now, d)
}

func (f *firewall) passesOut(now time.Time, d Datagram) bool {
	if f.DropOut {
		return false
	}
	if f.Stateful {
		f.sweep(now)
		f.flows[flow{d.Src, d.Dst}] = now.Add(f.Timeout)
	}
	return true
}

// answers reports whether an inbound datagram belongs to a flow, and refreshes the flow.
func (f *firewall) answers(now time.Time, d Datagram) bool {
	k := flow{d.Dst, d.Src}
	if !f.flows[k].After(now) {
		return false
	}
	f.flows[k] = now.Add(f.Timeout)
	return true
}

func (f *firewall) sweep(now time.Time) {
	if now.Sub(f.swept) < sweepInterval {
		return
	}
	f.swept = now
	for k, until := range f.flows {
		if !until.After(now) {
			delete(f.flows, k)
		}
	}
}
