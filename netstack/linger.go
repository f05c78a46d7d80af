package netstack

import (
	"container/list"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// lingerCost is what an endpoint costs besides its buffers, in bytes. gVisor keeps one after its
// connection was closed here: in FIN-WAIT-2 until the peer closes, for a minute at most, and then in
// TIME-WAIT. lingerPart is the fraction of TCPMemory that all of these may take.
const (
	lingerCost = 7 << 10
	lingerPart = 8
)

// lingering are the connections that were closed here and whose endpoints have not ended. Their
// number is bounded, because a peer decides how fast it connects, and whether it ever closes.
// memory.mu guards it.
type lingering struct {
	most  int // immutable
	count int // of each peer, at most a quarter of most: see add
	of    map[netip.Addr]*closed
}

// closed are one peer's, oldest first.
type closed struct {
	list.List     // of *share
	hopeless  int // as long as there are no more, none can be ended
}

func newLingering(o Options) lingering {
	return lingering{most: int(o.TCPMemory / lingerPart / lingerCost), of: make(map[netip.Addr]*closed)}
}

// add records a connection. Those of one peer count for others up to a quarter of all: a peer that
// acknowledges nothing may have more, which only their timeout ends.
func (l *lingering) add(s *share) (mine *closed) {
	if mine = l.of[s.peer]; mine == nil {
		mine = new(closed)
		l.of[s.peer] = mine
	}
	if s.lingers = mine.PushBack(s); mine.Len() <= l.most/4 {
		l.count++
	}
	return mine
}

// remove forgets a connection.
func (l *lingering) remove(s *share) {
	mine := l.of[s.peer]
	if mine.Len() <= l.most/4 {
		l.count--
	}
	mine.Remove(s.lingers)
	if s.lingers, mine.hopeless = nil, 0; mine.Len() == 0 {
		delete(l.of, s.peer)
	}
}

// linger records that a connection was closed here. A peer's endpoints may be as many as it leaves
// for all others; its oldest ones end for the latest. Only those end whose data is all acknowledged:
// the others have a send buffer, which is accounted for, and get no further than their timeout.
func (m *memory) linger(s *share) {
	m.mu.Lock()
	l := &m.lingering
	mine := l.add(s)
	var out []*share
	if over := mine.Len() + l.count - l.most; over > 0 && mine.Len() > mine.hopeless {
		out = oldest(&mine.List, (over+1)/2+mine.Len()/8) // some more, so that it takes no search for each
		if len(out) == 0 {
			mine.hopeless = mine.Len() + mine.Len()/8
		}
	}
	m.mu.Unlock()
	if ended(s.ep) {
		m.ended(s)
	}
	for _, o := range out {
		o.ep.Abort() // without the lock: it calls ended
	}
}

// oldest returns up to n of a peer's endpoints with nothing left to send, those in TIME-WAIT first:
// there the peer has closed, too, so it does not notice.
func oldest(of *list.List, n int) (out []*share) {
	for _, state := range []tcp.EndpointState{tcp.StateTimeWait, tcp.StateFinWait2} {
		for e := of.Front(); e != nil && len(out) < n; e = e.Next() {
			if s := e.Value.(*share); tcp.EndpointState(s.ep.State()) == state {
				out = append(out, s)
			}
		}
	}
	return out
}

// ended records that a connection's endpoint has ended. Only the first call does anything.
func (m *memory) ended(s *share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.lingers != nil {
		m.lingering.remove(s)
	}
}
