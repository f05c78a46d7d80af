package netstack

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// queueBytes is how much outbound TCP payload may wait for WireGuard before senders
	// are held back: one segment, besides the one that is being cut. Holding back spreads
	// a window over the round trip instead of sending it as one burst, after which every
	// stage up to the acknowledgement stood still; the packets are also still in the cache
	// when they are sealed. 1 MB cost a quarter of the throughput of one stream (bench/README).
	queueBytes = 64 << 10

	// queuePackets bounds the packets that cannot be held back (acknowledgements, UDP,
	// ICMP, resets): beyond it they are dropped. 4096 is about what 64 batches carry.
	queuePackets = 4096

	// holdBack is the longest that a sender waits for room. It only matters when nobody
	// reads the device; TCP then takes the drop for a loss and backs off.
	holdBack = 100 * time.Millisecond
)

// verdict says what became of a packet that was given to the queue.
type verdict int

const (
	queued verdict = iota
	queueFull
	queueClosed
)

// queue carries outbound packets from gVisor to the device. Any number of goroutines
// may put; one takes. Packets in it hold one reference each.
//
// TCP segments with payload wait for room (bounded by holdBack): the goroutine that waits
// is the application's own Write, or one of gVisor's TCP processors, never WireGuard's
// receiving goroutine, so the wait cannot close a circle.
type queue struct {
	mu       sync.Mutex
	notEmpty sync.Cond // the taker waits
	room     sync.Cond // putters wait

	// Under mu.
	packets []*stack.PacketBuffer // a ring
	head    int
	count   int
	bytes   int
	waiting int  // putters in room.Wait
	hurry   bool // nobody waits for room any more
	closed  bool
}

func newQueue() *queue {
	q := &queue{packets: make([]*stack.PacketBuffer, 64)}
	q.notEmpty.L = &q.mu
	q.room.L = &q.mu
	return q
}

// put takes its own reference of pkt if it queues it. wait says whether the caller may be
// held back until there is room.
func (q *queue) put(pkt *stack.PacketBuffer, size int, wait bool) verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait && q.bytes >= queueBytes && !q.awaitRoomLocked() {
		if q.closed {
			return queueClosed
		}
		return queueFull
	}
	switch {
	case q.closed:
		return queueClosed
	case q.count >= queuePackets:
		return queueFull
	}
	if q.count == len(q.packets) {
		q.growLocked()
	}
	q.packets[(q.head+q.count)%len(q.packets)] = pkt.IncRef()
	q.count++
	q.bytes += size
	if q.count == 1 {
		q.notEmpty.Signal()
	}
	return queued
}

// awaitRoomLocked waits until the queue is below its bound; false if that took too long
// or the queue closes.
func (q *queue) awaitRoomLocked() bool {
	expired := false
	timer := time.AfterFunc(holdBack, func() {
		q.mu.Lock()
		expired = true
		q.mu.Unlock()
		q.room.Broadcast()
	})
	defer timer.Stop()
	q.waiting++
	defer func() { q.waiting-- }()
	for q.bytes >= queueBytes {
		if expired || q.hurry || q.closed {
			return false
		}
		q.room.Wait()
	}
	return true
}

func (q *queue) growLocked() {
	bigger := make([]*stack.PacketBuffer, 2*len(q.packets))
	for i := range q.count {
		bigger[i] = q.packets[(q.head+i)%len(q.packets)]
	}
	q.packets, q.head = bigger, 0
}

// take appends queued packets to dst until they are cut into enough packets at least,
// waiting for the first one if dst is empty. It reports false once the queue is closed and empty. The
// caller owns the references.
func (q *queue) take(dst []*stack.PacketBuffer, enough int) ([]*stack.PacketBuffer, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.count == 0 && len(dst) == 0 {
		if q.closed {
			return dst, false
		}
		q.notEmpty.Wait()
	}
	for got := 0; q.count > 0 && got < enough; {
		pkt := q.packets[q.head]
		q.packets[q.head] = nil
		q.head = (q.head + 1) % len(q.packets)
		q.count--
		q.bytes -= pkt.Size()
		got += packetsOf(pkt, 0)
		dst = append(dst, pkt)
	}
	// Waking at half saves putters and taker from handing over one segment at a time.
	if q.waiting > 0 && q.bytes <= queueBytes/2 {
		q.room.Broadcast()
	}
	return dst, true
}

// stopWaiting lets go of all held-back putters, now and later, so that endpoints can be
// aborted. Packets may still be put and taken.
func (q *queue) stopWaiting() {
	q.mu.Lock()
	q.hurry = true
	q.mu.Unlock()
	q.room.Broadcast()
}

// close refuses further packets. What is queued can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.room.Broadcast()
	q.notEmpty.Broadcast()
}
