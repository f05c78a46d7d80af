package underlay

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// Several sockets have no common order, but the counters of data messages show the order in which
// they were sent. A lane is read only until a session's next block begins. That block is
// delivered once the lanes of earlier blocks are empty. Since a block's datagrams arrive before
// the next block's, a lane that is empty after the next block was read holds nothing more of the
// earlier block.
//
// A lane that is never empty, because a stranger fills it, would block the others for ever if what
// they wait for was lost. So they continue after a while (longestWait).
//
// With many sessions, the first datagram in one lane may wait for one that is behind another in
// another lane. They cannot all wait for each other, since the one that arrived first has nothing
// before it, unless datagrams were lost. Then the one that has waited longest goes first.

const (
	// sessionsKept bounds the sessions whose order is tracked, in a table indexed by the lowest
	// byte of the session index. WireGuard's indices are random, so few share an entry; those are
	// delivered in any order.
	sessionsKept = 256
	// laneTurn is how many calls' datagrams one lane may deliver while others wait: one session
	// never needs more. A forger can fill only one lane, as it would one socket.
	laneTurn = 1 << blockShift
	// longestWait is how many calls a lane may wait for earlier ones: as many as all of them
	// deliver in their turns.
	longestWait = maxLanes * laneTurn
)

// progress is how far a session's delivery has come.
type progress struct {
	session uint32 // receiver_index, as it is in the message
	next    uint64 // one above the counter that was delivered last
}

// lane is one of the sockets of a spread.
type lane struct {
	*receiver // its rest is what the lane holds
	index     int
	fd        uintptr
	ready     bool // not known to be empty

	// About what it holds:
	data        bool
	session     uint32
	first, last uint64 // counters

	heldAt, emptyAt uint64 // the calls that returned it, and that last returned EAGAIN
}

func (l *lane) holds() bool { return len(l.rest) > 0 }

// receive is the conn.ReceiveFunc; see receiver.receive.
func (g *spread) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	g.begin(packets, sizes, eps)
	err := g.raw.Read(g.take)
	if err != nil {
		err = net.ErrClosed // an epoll instance has no other errors
	}
	return g.result(err)
}

// read is called by the poller; false makes it wait for an event. The event is most likely for the
// lane that delivered last, so the others are read only if it was not.
func (g *spread) read(epoll uintptr) bool {
	guess := g.waited
	g.waited = false
	if guess {
		g.lanes[g.current].ready = true
		g.fillBatch()
	}
	if g.n == 0 && g.errno == 0 {
		n, _ := unix.EpollWait(int(epoll), g.events[:], 0)
		for _, e := range g.events[:max(n, 0)] {
			g.lanes[e.Fd].ready = true
		}
		g.fillBatch()
	}
	g.waited = g.n == 0 && g.errno == 0
	return !g.waited
}

// fillBatch delivers what the ready lanes have.
func (g *spread) fillBatch() {
	for g.hasRoom() {
		l := g.next()
		if l == nil {
			return
		}
		g.deliver(l)
	}
}

func (g *spread) hasRoom() bool { return g.n < len(g.packets) && g.errno == 0 }

// deliver copies what a lane holds into the batch while it has room.
func (g *spread) deliver(l *lane) {
	l.deliver()
	if l.holds() { // the rest comes before what follows it
		return
	}
	if l.data {
		*g.progress(l) = progress{l.session, l.last + 1}
	}
	g.spare, l.buf = append(g.spare, l.buf), nil
}

func (g *spread) progress(l *lane) *progress { return &g.kept[l.session%sessionsKept] }

// next returns the lane to deliver next, nil if all are empty.
func (g *spread) next() *lane {
	for {
		calls, oldest := g.calls, (*lane)(nil)
		for i := range g.lanes {
			l := g.lanes[(g.current+i)%len(g.lanes)]
			if l.ready && !l.holds() {
				g.fill(l)
			}
			if !l.holds() {
				continue
			}
			if g.due(l) {
				return g.turnOf(l)
			}
			if oldest == nil || l.heldAt < oldest.heldAt {
				oldest = l
			}
		}
		switch {
		case oldest == nil:
			return nil
		case g.calls == calls: // everything has been looked at
			return g.turnOf(oldest)
		}
	}
}

// turnOf continues with the lane, or after its turn with the next one.
func (g *spread) turnOf(l *lane) *lane {
	if g.current != l.index {
		g.current, g.turn = l.index, 0
	}
	if g.turn++; g.turn > laneTurn {
		g.current, g.turn = (l.index+1)%len(g.lanes), 0
	}
	return l
}

// due reports whether nothing earlier from the lane's session is in another lane, or it has waited
// long enough.
func (g *spread) due(l *lane) bool {
	p := g.progress(l)
	if !l.data || p.session != l.session || l.first <= p.next || g.calls-l.heldAt > longestWait {
		return true
	}
	due, lanes, own := true, uint64(len(g.lanes)), l.first>>blockShift
	for b := max(p.next>>blockShift, own-min(own, lanes-1)); b < own; b++ {
		before := g.lanes[b%lanes]
		if !before.holds() && before.emptyAt < l.heldAt {
			g.fill(before)
		}
		due = due && !before.mayPrecede(l)
	}
	return due
}

// mayPrecede reports whether the lane has, or may have behind what it holds, earlier datagrams of
// the other lane's session. It has none if it holds later ones.
func (l *lane) mayPrecede(o *lane) bool {
	after := l.data && l.session == o.session && l.first > o.first
	return l.holds() && !after
}

// fill makes the lane hold the datagrams of one recvmsg, if there are any.
func (g *spread) fill(l *lane) {
	if k := len(g.spare); k > 0 {
		l.buf, g.spare = g.spare[k-1], g.spare[:k-1]
	} else {
		l.buf = make([]byte, receiveBuffer)
	}
	l.ready = true
	since, tries := l.s.errorsTaken.Load(), 0
	for g.hasRoom() && l.ready && !l.holds() {
		g.calls++
		n, errno := l.recvmsg(l.fd)
		switch {
		case errno == 0:
			l.accept(n) // an empty one takes its slot of the batch
			l.classify()
			l.heldAt = g.calls
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			l.ready, l.emptyAt = false, g.calls
		case l.s.pending(l.fd, errno, tries, &since):
			tries++
		default:
			g.errno = errno
		}
	}
	if !l.holds() {
		g.spare, l.buf = append(g.spare, l.buf), nil
	}
}

// classify determines the position in its session of what the lane holds. The kernel chose the lane
// by the first of the datagrams that UDP_GRO joined.
func (l *lane) classify() {
	if l.data = len(l.rest) >= minSizeData && [4]byte(l.rest) == [4]byte{typeData}; !l.data {
		return
	}
	l.session = binary.LittleEndian.Uint32(l.rest[4:])
	l.first = binary.LittleEndian.Uint64(l.rest[8:])
	l.last = l.first
	if last := l.rest[(len(l.rest)-1)/l.segment*l.segment:]; len(last) >= minSizeData {
		l.last = binary.LittleEndian.Uint64(last[8:])
	}
}
