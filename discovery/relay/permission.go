package relay

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// A permission lasts 5 minutes, which cannot be changed (RFC 8656 §9).
	permissionRefresh = 4 * time.Minute
	permissionRetry   = 5 * time.Second // after no answer
	deniedRetry       = time.Minute     // someone may change the server's configuration
	// askAtOnce bounds the concurrent requests, maxTogether the addresses in one, which are 12 or
	// 24 bytes each.
	askAtOnce   = 16
	maxTogether = 16
	// maxPermissions bounds the wanted addresses: those of a gateway's peers.
	maxPermissions = 256
)

// otherFamily is why an IPv6 address is denied on an IPv4 allocation. It cannot be fixed.
const otherFamily = "the allocation is of the other IP family"

// permissionState says whether the server relays to an address.
type permissionState uint8

const (
	unwanted permissionState = iota
	asked                    // not answered yet
	granted
	denied
)

// permission is one address to exchange datagrams with.
type permission struct {
	state    permissionState
	reason   string    // of denied
	due      time.Time // when to ask next
	doubtful bool      // a request with this and other addresses was rejected
}

// permissions is the wanted set. It has no clock and is not safe for concurrent use.
type permissions struct {
	relayed netip.Addr // the server's own, always wanted
	all     map[netip.Addr]*permission
}

func newPermissions(now time.Time, relayed netip.Addr) *permissions {
	p := &permissions{relayed: relayed, all: make(map[netip.Addr]*permission)}
	p.want(now, nil)
	return p
}

// want replaces the wanted set. Entries that stay keep their state.
func (p *permissions) want(now time.Time, addrs []netip.Addr) {
	old := p.all
	p.all = make(map[netip.Addr]*permission)
	for a, state := range initialStates(p.relayed, addrs) {
		switch {
		case old[a] != nil:
			p.all[a] = old[a]
		case state == denied:
			p.all[a] = &permission{state: denied, reason: otherFamily, due: farAway(now)}
		default:
			p.all[a] = &permission{state: state, due: now}
		}
	}
}

// initialStates returns the wanted addresses with their initial states.
func initialStates(relayed netip.Addr, addrs []netip.Addr) map[netip.Addr]permissionState {
	out := map[netip.Addr]permissionState{relayed: asked}
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		switch {
		case !a.IsValid() || out[a] != unwanted || len(out) >= maxPermissions:
		case a.Is4() != relayed.Is4():
			out[a] = denied // the answer would be 443 (RFC 8656 §9.2)
		default:
			out[a] = asked
		}
	}
	return out
}

// due lists the requests to make now, and returns when to look again. Granted addresses are
// requested together, which saves two thirds of the bytes; others one by one, since a server
// rejects a whole request if one of its addresses is denied (RFC 8656 §9.2).
func (p *permissions) due(now time.Time) (ask [][]netip.Addr, next time.Time) {
	next = farAway(now)
	var again []netip.Addr
	for a, e := range p.all {
		switch {
		case e.due.After(now):
			if e.due.Before(next) {
				next = e.due
			}
		case e.state == granted && !e.doubtful:
			again = append(again, a)
		default:
			ask = append(ask, []netip.Addr{a})
		}
	}
	ask = slices.AppendSeq(ask, slices.Chunk(again, maxTogether))
	return ask[:min(len(ask), askAtOnce)], next
}

// answered handles the server's answer to a request; some of its addresses may have been withdrawn
// meanwhile.
func (p *permissions) answered(now time.Time, addrs []netip.Addr, m message) {
	for _, a := range addrs {
		e := p.all[a]
		switch {
		case e == nil:
		case m.class == classSuccess:
			*e = permission{state: granted, due: now.Add(permissionRefresh)}
		case len(addrs) > 1:
			e.doubtful = true // one of them: request each separately
		default:
			*e = permission{state: denied, reason: explainDenied(m.code, a, a == p.relayed), due: now.Add(deniedRetry)}
		}
	}
}

// unanswered handles a missing answer. A granted permission stays for another minute.
func (p *permissions) unanswered(now time.Time, addrs []netip.Addr) {
	for _, a := range addrs {
		if e := p.all[a]; e != nil {
			e.due = now.Add(permissionRetry)
		}
	}
}

// states returns a copy for the sending side.
func (p *permissions) states() map[netip.Addr]permissionState {
	out := make(map[netip.Addr]permissionState, len(p.all))
	for a, e := range p.all {
		out[a] = e.state
	}
	return out
}

// refused lists what the server denies, and why; nil = nothing.
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

// farAway is later than any deadline.
func farAway(now time.Time) time.Time { return now.Add(24 * time.Hour) }
