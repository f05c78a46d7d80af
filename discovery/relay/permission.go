package relay

import (
	"net/netip"
	"time"
)

const (
	// A permission lasts 5 minutes and cannot be made to last longer (RFC 8656 §9).
	permissionRefresh = 4 * time.Minute
	permissionRetry   = 5 * time.Second // after no answer
	deniedRetry       = time.Minute     // somebody may change the server's configuration
	// maxPermissions bounds the wanted addresses: those of a gateway's peers.
	maxPermissions = 256
)

// permissionState says whether the server relays to an address.
type permissionState uint8

const (
	unwanted permissionState = iota
	asked                    // not answered yet
	granted
	denied
)

// permission is one address that datagrams are to be exchanged with.
type permission struct {
	state  permissionState
	reason string    // of denied
	due    time.Time // when to ask next
}

// permissions is the wanted set. It holds no clock and is not safe for concurrent use.
type permissions struct {
	relayed netip.Addr // the server's own, always wanted
	all     map[netip.Addr]*permission
}

func newPermissions(now time.Time, relayed netip.Addr) *permissions {
	p := &permissions{relayed: relayed, all: make(map[netip.Addr]*permission)}
	p.want(now, nil)
	return p
}

// want replaces the wanted set. What stays keeps its state.
func (p *permissions) want(now time.Time, addrs []netip.Addr) {
	old := p.all
	p.all = make(map[netip.Addr]*permission)
	for _, a := range append([]netip.Addr{p.relayed}, addrs...) {
		a = a.Unmap().WithZone("")
		switch {
		case !a.IsValid() || p.all[a] != nil || len(p.all) >= maxPermissions:
		case old[a] != nil:
			p.all[a] = old[a]
		case a.Is4() != p.relayed.Is4():
			// 443 would be the answer (RFC 8656 §9.2).
			p.all[a] = &permission{state: denied, reason: "the allocation is of the other IP family", due: farAway(now)}
		default:
			p.all[a] = &permission{state: asked, due: now}
		}
	}
}

// due lists the addresses to ask for now, and tells when to look again.
func (p *permissions) due(now time.Time) (ask []netip.Addr, next time.Time) {
	next = farAway(now)
	for a, e := range p.all {
		if !e.due.After(now) {
			ask = append(ask, a)
		} else if e.due.Before(next) {
			next = e.due
		}
	}
	return ask, next
}

// answered takes the server's answer for an address; it may have been withdrawn meanwhile.
func (p *permissions) answered(now time.Time, a netip.Addr, m message) {
	e := p.all[a]
	switch {
	case e == nil:
	case m.class == classSuccess:
		e.state, e.reason, e.due = granted, "", now.Add(permissionRefresh)
	default:
		e.state, e.reason, e.due = denied, explainDenied(m.code, a, a == p.relayed), now.Add(deniedRetry)
	}
}

// unanswered takes silence. What was granted holds for another minute.
func (p *permissions) unanswered(now time.Time, a netip.Addr) {
	if e := p.all[a]; e != nil {
		e.due = now.Add(permissionRetry)
	}
}

// states is a copy for the sending side.
func (p *permissions) states() map[netip.Addr]permissionState {
	out := make(map[netip.Addr]permissionState, len(p.all))
	for a, e := range p.all {
		out[a] = e.state
	}
	return out
}

// refused lists what the server refuses, and why; nil = nothing.
func (p *permissions) refused() map[netip.Addr]string {
	out := make(map[netip.Addr]string)
	for a, e := range p.all {
		if e.state == denied {
			out[a] = e.reason
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// farAway is later than anything that is waited for.
func farAway(now time.Time) time.Time { return now.Add(24 * time.Hour) }
