package netstack

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// queueBytes is how much outbound TCP payload may wait for WireGuard before senders are held
	// back: one segment, besides the one being cut. Holding back spreads a window over the round
	// trip. Otherwise it would leave as one burst, after which every stage up to the
	// acknowledgement would idle; the packets are also still in the cache when they are encrypted.
	// 1 MB cost a quarter of the throughput of one stream (bench/README).
	queueBytes = 64 << 10

	// queuePackets bounds the packets that cannot be held back (acknowledgements, ICMP, resets);
	// further ones are dropped. 4096 is about 64 batches. Of those beyond plentyPackets a peer may
	// have as many as it leaves for all others: it can make us answer as fast as it asks.
	queuePackets  = 4096
	plentyPackets = queuePackets / 2

	// queueDatagrams bounds the packets of datagrams. They have their own queue and get half of
	// each batch while both queues wait: nothing holds their senders back, and TCP does not wait
	// behind them. A peer may have as many as it leaves for all others, like memory: alone, 1024,
	// which are 1.4 MB, some milliseconds. Peers with the same hash, one in 256, share that.
	queueDatagrams = 2048
	// flowDatagrams is the part of it that a flow may take: more than the fragments of the largest
	// datagram. Flows with the same hash, one in 256, share it.
	flowDatagrams = 128

	// holdBack is how long a sender may wait for room, on a busy machine. Then its segment is
	// queued anyway, since a drop would cost a retransmission timeout.
	holdBack = 100 * time.Millisecond
	// queueMost bounds the outbound TCP payload while nobody reads the device; TCP takes a drop for
	// a loss and backs off.
	queueMost = 4 << 20
)

// outbound is a packet, and the hash of its peer, or nobody.
type outbound struct {
	pkt *stack.PacketBuffer
	of  uint16
}

// shares counts the packets in a ring by the hash of their peer.
type shares [nobody + 1]uint16

// nobody stands for the peers of packets that found a short queue, which are not looked up.
const nobody = 256

// fits reports whether n more of a peer fit, beside count in all. A peer may have as many as it leaves
// for all others.
func (s *shares) fits(of uint16, n, count, most int) bool {
	return count+n <= most && (of == nobody || int(s[of])+count+n <= most)
}

// ownerOf returns the hash of a packet's peer if count is beyond least.
func (q *queue) ownerOf(pkt *stack.PacketBuffer, count, least int) uint16 {
	if q.owner == nil || count < least {
		return nobody
	}
	return uint16(q.owner(pkt))
}

// verdict is the result of giving a packet to the queue.
type verdict int

const (
	queued verdict = iota
	queueFull
	queueClosed
)

// queue carries outbound packets from gVisor to the device. Any number of goroutines may put; one
// takes. Packets in it hold one reference each.
//
// TCP segments with payload wait for room (at most holdBack). The waiting goroutine is the
// application's own Write or one of gVisor's TCP processors, never WireGuard's receiving goroutine,
// so there is no deadlock.
type queue struct {
	mu       sync.Mutex
	notEmpty sync.Cond // the taker waits
	room     sync.Cond // putters wait

	// owner returns the hash of the peer that a packet goes to; nil knows no peers. Immutable.
	owner func(*stack.PacketBuffer) uint8

	// Under mu.
	ring[outbound]
	bytes     int
	packetsOf shares // in the ring
	datagrams ring[datagram]
	ofOwner   shares     // packets in datagrams
	ofFlow    [256]uint8 // the same, by the flow's hash
	waiting   int        // putters in room.Wait
	hurry     bool       // no more waiting for room
	closed    bool
	woken     bool // the taker has something else to do
	timer     *time.Timer
}

func newQueue() *queue {
	q := &queue{}
	q.notEmpty.L = &q.mu
	q.room.L = &q.mu
	q.timer = time.AfterFunc(time.Hour, q.wake)
	q.timer.Stop()
	return q
}

// put takes its own reference of pkt if it queues it. wait reports whether the caller may be held back
// until there is room.
func (q *queue) put(pkt *stack.PacketBuffer, size int, wait bool) verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait && q.bytes >= queueBytes {
		q.awaitRoomLocked()
	}
	of := q.ownerOf(pkt, q.count, plentyPackets)
	switch {
	case q.closed:
		return queueClosed
	case !q.packetsOf.fits(of, 1, q.count, queuePackets) || wait && q.bytes >= queueMost:
		return queueFull
	}
	q.push(outbound{pkt.IncRef(), of})
	q.packetsOf[of]++
	q.bytes += size
	if q.count == 1 {
		q.notEmpty.Signal()
	}
	return queued
}

// awaitRoomLocked waits until the queue is below its bound, holdBack has passed, or the queue
// closes.
func (q *queue) awaitRoomLocked() {
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
	for q.bytes >= queueBytes && !expired && !q.hurry && !q.closed {
		q.room.Wait()
	}
}

// datagram is a packet of a datagram, and the hashes of its flow and of its peer.
type datagram struct {
	pkt   *stack.PacketBuffer
	flow  uint8
	owner uint16 // may be nobody
}

// putDatagram queues all packets of a datagram, or none, and takes over the caller's references.
func (q *queue) putDatagram(packets []*stack.PacketBuffer, flow uint8) verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, n, of := queued, len(packets), q.ownerOf(packets[0], q.datagrams.count, flowDatagrams)
	switch {
	case q.closed:
		v = queueClosed
	case !q.ofOwner.fits(of, n, q.datagrams.count, queueDatagrams), int(q.ofFlow[flow])+n > flowDatagrams:
		v = queueFull
	}
	for _, pkt := range packets {
		if v != queued {
			pkt.DecRef()
			continue
		}
		q.datagrams.push(datagram{pkt, flow, of})
		q.ofOwner[of]++
		q.ofFlow[flow]++
	}
	if v == queued && q.datagrams.count == n {
		q.notEmpty.Signal()
	}
	return v
}

// ring is a queue that grows. The zero value is empty.
type ring[T any] struct {
	items []T
	head  int
	count int
}

func (r *ring[T]) push(item T) {
	if r.count == len(r.items) {
		bigger := make([]T, max(64, 2*len(r.items)))
		for i := range r.count {
			bigger[i] = r.items[(r.head+i)%len(r.items)]
		}
		r.items, r.head = bigger, 0
	}
	r.items[(r.head+r.count)%len(r.items)] = item
	r.count++
}

// pop removes the oldest; there must be one.
func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.head]
	r.items[r.head] = none
	r.head = (r.head + 1) % len(r.items)
	r.count--
	return item
}

// take appends queued packets to dst until they make at least enough packets after cutting. If dst
// is empty it waits for the first one, until wait has passed or wake is called; a negative wait
// means for ever. It returns false once the queue is closed and empty. The caller owns the
// references.
func (q *queue) take(dst []*stack.PacketBuffer, enough int, wait time.Duration) ([]*stack.PacketBuffer, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wait > 0 && q.emptyLocked() && len(dst) == 0 {
		q.timer.Reset(wait)
		defer q.timer.Stop()
	}
	for q.emptyLocked() && len(dst) == 0 {
		if q.closed {
			return dst, false
		}
		if q.woken || wait == 0 {
			break
		}
		q.notEmpty.Wait()
	}
	q.woken = false
	got := 0
	takeUntil := func(most int) {
		for q.count > 0 && got < most {
			o := q.pop()
			q.packetsOf[o.of]--
			q.bytes -= o.pkt.Size()
			got += packetsOf(o.pkt, 0)
			dst = append(dst, o.pkt)
		}
	}
	if q.datagrams.count > 0 {
		takeUntil(enough / 2)
		for q.datagrams.count > 0 && got < enough {
			d := q.datagrams.pop()
			q.ofOwner[d.owner]--
			q.ofFlow[d.flow]--
			got++
			dst = append(dst, d.pkt)
		}
	}
	takeUntil(enough)
	// Waking at half full keeps putters and taker from handing over one segment at a time.
	if q.waiting > 0 && q.bytes <= queueBytes/2 {
		q.room.Broadcast()
	}
	return dst, true
}

func (q *queue) emptyLocked() bool { return q.count == 0 && q.datagrams.count == 0 }

// wake ends the taker's wait, or its next one.
func (q *queue) wake() {
	q.mu.Lock()
	q.woken = true
	q.mu.Unlock()
	q.notEmpty.Signal()
}

// stopWaiting releases all held-back putters, now and later, so that endpoints can be aborted.
// Packets may still be put and taken.
func (q *queue) stopWaiting() {
	q.mu.Lock()
	q.hurry = true
	q.mu.Unlock()
	q.room.Broadcast()
}

// close rejects further packets. Queued ones can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.room.Broadcast()
	q.notEmpty.Broadcast()
}
