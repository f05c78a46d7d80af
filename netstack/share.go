package netstack

import (
	"container/list"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// share is a connection's part of the memory. The receive buffer is given back when the connection
// is closed here, the send buffer when its endpoint ends: until then the peer has not acknowledged
// what was sent.
type share struct {
	memory *memory
	peer   netip.Addr

	writing sync.Mutex   // held during a whole Write, so that two do not mix
	written atomic.Int64 // when something was last written, in Unix nanoseconds

	// Under memory.mu.
	ep            tcpip.Endpoint // nil while connecting
	send, receive int            // bytes; 0 once given back
	lingers       *list.Element  // in memory.lingering; nil before it was closed and once it has ended

	// Immutable once attached.
	mostSend, mostReceive int   // bounds of the two, in bytes
	below                 *flow // what sends the connection's data; nil is gVisor itself

	// Owned by the connection's readers, under Conn.tuning.
	sizing  rightSizing
	granted int   // the receive buffer's size
	wanted  int   // the largest size that there was reason for
	copied  int   // read since more was last requested
	arrived int64 // the value of below.arrived that sizing knows
}

// attach sets the buffers of a connected endpoint, and watches for its end. The handshake's
// round-trip time, 0 if unknown, decides how far the buffers may grow. mss is the maximum segment
// payload, in bytes. below is what sends the connection's data, or nil.
func (s *share) attach(ep tcpip.Endpoint, wq *waiter.Queue, rtt time.Duration, mss int, below *flow) {
	s.below = below
	rate, rounds := windowRate, plainRounds
	if below != nil {
		rate, rounds = flowRate, gapRounds
	}
	s.mostSend, s.mostReceive = s.memory.most(rtt, rate)
	s.memory.mu.Lock()
	s.ep = ep
	send, receive := s.send, s.receive
	s.memory.mu.Unlock()
	s.boundHeld(send)
	s.sizing, s.granted = newRightSizing(mss, rounds), receive
	ep.SocketOptions().SetSendBufferSize(int64(send), false)
	ep.SocketOptions().SetReceiveBufferSize(int64(receive), false)
	entry := waiter.NewFunctionEntry(waiter.EventHUp, func(waiter.EventMask) { // also when TIME-WAIT begins
		s.memory.release(s, &s.send)
		if ended(ep) {
			s.memory.ended(s)
		}
	})
	wq.EventRegister(&entry)
	if ended(ep) {
		s.memory.release(s, &s.send)
	}
}

// close gives everything back if the connection was never established.
func (s *share) close() {
	s.closeReceive()
	s.memory.release(s, &s.send)
}

// closeReceive gives the receive buffer back: gVisor has emptied it and refuses more.
func (s *share) closeReceive() { s.memory.release(s, &s.receive) }

// beforeWrite requests what gVisor's tuning has added to the send buffer, and undoes what is not
// granted. Only a write fills the buffer, so the bound holds.
func (s *share) beforeWrite(now time.Time) {
	s.written.Store(now.UnixNano())
	ops := s.ep.SocketOptions()
	s.memory.mu.Lock()
	send := s.send
	s.memory.mu.Unlock()
	if size := int(ops.GetSendBufferSize()); size > send {
		granted := s.memory.grow(s, &s.send, min(size, s.mostUseful()))
		if granted < size && granted > 0 {
			ops.SetSendBufferSize(int64(granted), false)
		}
		s.boundHeld(granted)
	}
}

// full reports whether a write has to wait for what was written before it to be sent.
func (s *share) full() bool { return s.below != nil && s.below.full(s.memory.shortPath) }

// afterWrite records that n bytes were written.
func (s *share) afterWrite(n int) {
	if s.below != nil {
		s.below.wrote(n)
	}
}

// mostUseful returns the useful maximum of the send buffer, in bytes. gVisor's tuning has no limit
// if data is sent below it, and most of a window may wait for a gap to be filled.
func (s *share) mostUseful() int {
	if s.below == nil {
		return s.mostSend
	}
	return min(s.mostSend, max(s.memory.shortPath, gapWindows*int(s.below.peer.window.Load())))
}

// boundHeld bounds what is held below gVisor by a size of its send buffer, with room for a last
// write.
func (s *share) boundHeld(send int) {
	if most := int64(2*send + 2*gsoMaxSize); s.below != nil && most > s.below.most.Load() {
		s.below.most.Store(most)
	}
}

// afterRead requests what the receive buffer should have after n bytes were read, and makes gVisor
// announce what is granted. The buffer only grows. What was not granted, or not requested at once,
// is requested again as more is read.
func (s *share) afterRead(n int) {
	came := n
	if s.below != nil { // what lies behind a gap has arrived too, and cannot be read yet
		arrived := s.below.arrived.Load()
		came, s.arrived = int(arrived-s.arrived), arrived
	}
	want := min(s.sizing.after(came, time.Now(), s.roundTrip), s.mostReceive)
	if want > s.granted {
		s.wanted = max(s.wanted, want)
	} else {
		if s.copied += n; s.wanted <= s.granted || s.copied < s.granted/2 {
			return
		}
		want = min(2*s.granted, s.wanted)
	}
	s.copied = 0
	if granted := s.memory.grow(s, &s.receive, want); granted > s.granted {
		s.granted = granted
		s.ep.SocketOptions().SetReceiveBufferSize(int64(granted), true)
	}
}

// roundTrip returns the latest measured round-trip time, 0 if none.
func (s *share) roundTrip() time.Duration {
	if s.below != nil {
		return s.below.peer.roundTrip()
	}
	var info tcpip.TCPInfoOption
	_ = s.ep.GetSockOpt(&info) // cannot fail on a TCP endpoint
	return info.RTT
}

// needed returns the size that the send buffer can be lowered to; gVisor's is lowered already.
func (s *share) needed(size int, now time.Time) int {
	state := tcp.EndpointState(s.ep.State())
	if state == tcp.StateFinWait2 || state == tcp.StateTimeWait {
		return 0 // everything is acknowledged (RFC 9293 §3.3.2), and nothing more can be written
	}
	idle := now.UnixNano()-s.written.Load() > int64(idleAfter)
	if size <= leastSend || !idle || !s.writing.TryLock() {
		return size
	}
	defer s.writing.Unlock() // a Write that waits for room could otherwise miss its wake-up
	if state != tcp.StateEstablished && state != tcp.StateCloseWait {
		return size
	}
	// gVisor does not say how full the buffer is, only whether it is full.
	ops := s.ep.SocketOptions()
	ops.SetSendBufferSize(leastSend, false)
	if s.ep.Readiness(waiter.WritableEvents)&waiter.WritableEvents == 0 {
		ops.SetSendBufferSize(int64(size), false)
		return size
	}
	return leastSend
}

// ended reports whether gVisor is done with an endpoint.
func ended(ep tcpip.Endpoint) bool {
	state := tcp.EndpointState(ep.State())
	return state == tcp.StateClose || state == tcp.StateError
}
