package sender

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// sim is a network in virtual time: senders on one side of a bottleneck, receivers on the other.
// All randomness comes from one seed, so runs are reproducible.
type sim struct {
	now    time.Duration
	events events
	count  int
	rng    *rand.Rand
	path   simPath

	free    time.Duration // when the bottleneck will be idle
	bad     bool          // in a burst of losses
	tokens  float64       // of the policer, in bytes
	filled  time.Duration // when they were counted
	slot    time.Duration // of jitter, in 5 ms
	extra   time.Duration // in it
	last    time.Duration // arrival of the last packet
	stall   struct{ from, until time.Duration }
	offered map[int]int   // packets by flow
	dropped map[int]int   // of those, by the queue or the policer
	delays  time.Duration // sum of the queueing delays of passed packets
	passed  int
	wild    wildState
}

// simPath describes a path. Loss is the same both ways, the rest applies to the way there.
type simPath struct {
	rate    float64 // bits per second
	rtt     time.Duration
	queue   time.Duration // of the bottleneck
	loss    float64       // independent
	burst   float64       // Gilbert–Elliott: probability that a packet begins a burst, which loses half of 8 packets
	jitter  time.Duration // uniform from 0, redrawn every 5 ms; the order is kept
	reorder float64       // share of packets that take a tenth of the round trip longer
	police  float64       // bits per second; 0 is none
	timers  time.Duration // how late the sender's timers are at most
	stalls  time.Duration // for how long the CPU is busy with something else, a ninth of the time
	acks    int           // an acknowledgement covers this many packets in order, or comes after delayedAck; 0 is 1
	wild    *wild         // what few paths do; nil is nothing
}

// headers is the size of a packet beside its payload, in bytes: IPv6, TCP with timestamps,
// WireGuard, UDP and IP again.
const (
	simMSS  = 1380
	headers = 60 + 12 + 32 + 8 + 40
)

type event struct {
	at time.Duration
	n  int
	do func()
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	o := *h
	x := o[len(o)-1]
	o[len(o)-1] = event{}
	*h = o[:len(o)-1]
	return x
}

func newSim(p simPath, seed uint64) *sim {
	s := &sim{
		path: p, rng: rand.New(rand.NewPCG(seed, 1)), tokens: 32 << 10,
		offered: make(map[int]int), dropped: make(map[int]int),
	}
	if p.wild != nil && p.wild.bucket > 0 {
		s.tokens = float64(p.wild.bucket)
	}
	return s
}

func (s *sim) at(t time.Duration, do func()) {
	s.count++
	heap.Push(&s.events, event{max(t, s.now), s.count, do})
}

func (s *sim) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= until {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = until
}

// forget resets the counters.
func (s *sim) forget() {
	clear(s.offered)
	clear(s.dropped)
	s.delays, s.passed = 0, 0
}

// loses draws whether a packet is lost on the path.
func (s *sim) loses() bool {
	if s.path.burst > 0 {
		if s.bad {
			s.bad = s.rng.Float64() >= 1.0/8
		} else {
			s.bad = s.rng.Float64() < s.path.burst
		}
		if s.bad && s.rng.Float64() < 0.5 {
			return true
		}
	}
	return s.path.loss > 0 && s.rng.Float64() < s.path.loss
}

// send sends a packet over the bottleneck.
func (s *sim) send(flow, payload int, arrives func()) {
	if s.path.wild != nil {
		s.sendWild(flow, payload, arrives)
		return
	}
	s.offered[flow]++
	size := float64(payload + headers)
	if s.loses() {
		return
	}
	if p := s.path.police; p > 0 {
		s.tokens = min(s.tokens+p/8*(s.now-s.filled).Seconds(), 32<<10)
		s.filled = s.now
		if s.tokens < size {
			s.dropped[flow]++
			return
		}
		s.tokens -= size
	}
	begins := max(s.free, s.now)
	if begins-s.now > s.path.queue {
		s.dropped[flow]++
		return
	}
	s.delays += begins - s.now
	s.passed++
	s.free = begins + time.Duration(size*8/s.path.rate*1e9)
	at := s.free + s.path.rtt/2
	if s.path.jitter > 0 {
		if slot := s.free / (5 * time.Millisecond); slot != s.slot {
			s.slot, s.extra = slot, time.Duration(s.rng.Int64N(int64(s.path.jitter)))
		}
		at = max(at+s.extra, s.last)
		s.last = at
	}
	if s.rng.Float64() < s.path.reorder {
		at += s.path.rtt / 10
	}
	s.at(at, arrives)
}

// answer sends an acknowledgement back.
func (s *sim) answer(arrives func()) {
	if s.path.wild != nil {
		s.answerWild(arrives)
		return
	}
	if s.loses() {
		return
	}
	s.at(s.seen(s.now+s.path.rtt/2), arrives)
}

// seen returns when the CPU has time for an acknowledgement that arrives.
func (s *sim) seen(at time.Duration) time.Duration {
	if s.path.stalls == 0 {
		return at
	}
	for at > s.stall.until {
		s.stall.from = s.stall.until + time.Duration(s.rng.ExpFloat64()*8*float64(s.path.stalls))
		s.stall.until = s.stall.from + time.Duration(s.rng.ExpFloat64()*float64(s.path.stalls))
	}
	if at > s.stall.from {
		return s.stall.until
	}
	return at
}

// alone returns a flow on a path of its own.
func alone(now, rtt time.Duration, c Config) *Flow { return NewPath(now, rtt, c.MSS).Open(c) }

// next returns what a flow that is alone on its path sends now.
func next(f *Flow, now time.Duration) (Range, bool) {
	_, r, ok := f.path.Next(now)
	return r, ok
}

// simFlow is a bulk transfer that runs forever.
type simFlow interface {
	start()
	delivered() int64
}

// simPeer is a Path and the flows that use it.
type simPeer struct {
	s     *sim
	path  *Path
	flows map[*Flow]*ownFlow
	armed time.Duration
}

// ownFlow is a Flow below a sender with its own slow start, to a TCP receiver.
type ownFlow struct {
	s          *sim
	id         int
	on         *simPeer // nil: a path of its own
	f          *Flow
	peer       receiver
	start0     Seq
	most       int     // bytes in total; 0 is no end
	credit     float64 // segments that the sender above may have unacknowledged
	unanswered int     // unacknowledged packets
	sent       Seq     // the end of what was sent
}

func (o *ownFlow) start() {
	const window = 64 << 20
	o.start0 = Seq(o.s.rng.Uint32())
	o.sent = o.start0
	o.peer = receiver{next: o.start0, buffer: window}
	if o.on == nil {
		handshake := o.s.path.rtt + max(o.s.free-o.s.now, 0)
		o.on = &simPeer{s: o.s, path: NewPath(o.s.now, handshake, simMSS), flows: make(map[*Flow]*ownFlow)}
	}
	o.f = o.on.path.Open(Config{Start: o.start0, MSS: simMSS, Window: window})
	o.on.flows[o.f] = o
	o.credit = 10
	o.offer()
	o.on.pump()
}

func (o *ownFlow) delivered() int64 { return o.peer.read }

// offer hands over what a sender above would. Its slow start never ends, as it sees no loss.
func (o *ownFlow) offer() {
	end := o.f.Unacknowledged() + Seq(min(o.credit, 40000)*simMSS)
	if last := o.start0 + Seq(o.most); o.most > 0 && last.Before(end) {
		end = last
	}
	o.f.Offer(o.s.now, end)
}

func (p *simPeer) pump() {
	s := p.s
	for {
		f, r, ok := p.path.Next(s.now)
		if !ok {
			break
		}
		o := p.flows[f]
		s.wild.again = r.Start.Before(o.sent)
		if o.sent.Before(r.End) {
			o.sent = r.End
		}
		s.send(o.id, r.Size(), func() { o.arrives(r) })
	}
	at, ok := p.path.Due()
	if !ok {
		return
	}
	at = max(at, s.now) + 100*time.Microsecond
	if s.path.timers > 0 {
		at += time.Duration(s.rng.Int64N(int64(s.path.timers)))
	}
	if p.armed > s.now && p.armed <= at {
		return
	}
	p.armed = at
	s.at(at, func() {
		if p.armed == at {
			p.pump()
		}
	})
}

func (o *ownFlow) arrives(r Range) {
	o.peer.take(r)
	if o.unanswered++; o.unanswered < o.s.path.acks && len(o.peer.held) == 0 {
		if o.unanswered == 1 {
			o.s.at(o.s.now+o.s.path.wild.delaysAck(), func() {
				if o.unanswered > 0 {
					o.answers()
				}
			})
		}
		return
	}
	o.answers()
}

func (o *ownFlow) answers() {
	o.unanswered = 0
	a := o.peer.ack(3)
	o.s.answer(func() {
		if o.on.flows[o.f] == nil {
			return // It was closed.
		}
		before := o.f.Unacknowledged()
		o.f.OnAck(o.s.now, a)
		o.credit += float64(before.To(o.f.Unacknowledged())) / simMSS
		o.offer()
		o.on.pump()
	})
}
