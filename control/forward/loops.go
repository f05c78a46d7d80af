package forward

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// errLoop: a backend of a service of this cluster is this gateway itself.
var errLoop = errors.New("it leads back to this gateway")

// end is an address outside the tunnel between which and this gateway a flow is: the local one of a
// socket to a backend, or the remote one of a client.
type end struct {
	inbound, udp bool
	at           netip.AddrPort
}

// loops finds flows of this gateway to itself. A backend is an address in the cluster, and whatever
// translates it there may lead it to a listener of this gateway, as Cilium does when it connects
// sockets. Such a flow would carry one peer's traffic to another peer with the rights of the
// gateway's own address. Its local address at the backend's end is the client's at the listener's.
// Each end looks for the other, because either may be first.
//
// Sockets to different destinations may have the same local port. So a program with the gateway's
// address may be refused by chance: one connection in 14,000 for each that is open to a backend, because
// Linux uses every second of 28,000 ports first. If the program is first, the socket to the backend is
// replaced by another.
type loops struct {
	mu   sync.Mutex
	ends map[end]int
}

// add adds an end, and reports whether it is that of a flow in the other direction, too. An added end
// must be removed.
func (l *loops) add(e end) (loop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[e]++
	e.inbound = !e.inbound
	return l.ends[e] > 0
}

// remove removes an end; the zero value is none.
func (l *loops) remove(e end) {
	if e == (end{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends[e]--; l.ends[e] == 0 {
		l.ends = without(l.ends, e)
	}
}

// is records that a flow has an end at an address outside the tunnel, instead of an earlier one, and
// reports whether that is this gateway itself. Only who opens the flow calls it.
func (f *flow) is(at net.Addr) (loop bool) {
	a, _ := netip.ParseAddrPort(at.String()) // of a connection that there is
	f.table.loops.remove(f.outside)
	f.outside = end{f.direction == DirectionInbound, false, unmapped(a)}
	return f.table.loops.add(f.outside)
}

// is does this for a flow of datagrams to a backend, before anything is sent through it. So the other
// end finds this one, unless it is that of a client that is remembered since before.
func (f *udpFlow) is(at netip.AddrPort) (loop bool) {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if f.phase == ended {
		return false
	}
	f.table.loops.remove(f.outside)
	f.outside = end{true, true, unmapped(at)}
	return f.table.loops.add(f.outside)
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
