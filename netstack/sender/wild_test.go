package sender

import (
	"math"
	"time"
)

// wild is what few paths do, and some do at once.
type wild struct {
	buffer   int           // bytes that the bottleneck's queue holds; 0 is simPath.queue at the present rate
	bucket   int           // bytes that the policer's bucket holds; 0 is 32 KiB
	slot     time.Duration // the policer has a quota for each slot, instead of a bucket; 0 is none
	back     float64       // bits per second of the way back; 0 is no limit
	backHeld time.Duration // queue of the way back
	ackLoss  float64       // loss on the way back, beside simPath.loss
	batch    time.Duration // packets arrive only at multiples of it, as on Wi-Fi
	backEach time.Duration // the same for acknowledgements
	delay    time.Duration // of acknowledgements at the receiver; 0 is delayedAck
	copies   float64       // share of packets that arrive twice
	strays   float64       // share of packets that are up to stray later
	stray    time.Duration
	bigLoss  float64 // loss of packets of more than 1000 bytes
	resent   float64 // loss of retransmissions
	aqm      aqm
	out      struct {
		every, lasts time.Duration // the path is gone for lasts, each so often
		holds        bool          // packets wait in the queue meanwhile, instead of being lost
	}
}

// aqm is how a queue is managed.
type aqm int

const (
	tailDrop aqm = iota
	coDel        // RFC 8289
	pie          // RFC 8033
)

// delaysAck returns for how long a receiver delays an acknowledgement.
func (w *wild) delaysAck() time.Duration {
	if w == nil || w.delay == 0 {
		return delayedAck
	}
	return w.delay
}

// gone returns when the outage ends in which t lies, 0 if it is none.
func (w *wild) gone(t time.Duration) time.Duration {
	if w.out.every == 0 {
		return 0
	}
	if in := t % w.out.every; in >= w.out.every-w.out.lasts {
		return t - in + w.out.every
	}
	return 0
}

// wildState is the state of such a path.
type wildState struct {
	again    bool          // the next packet is a retransmission
	queue    fifo[queued]  // of the bottleneck
	bytes    int           // in it
	backFree time.Duration // when the way back will be idle
	backLast time.Duration // arrival of the last acknowledgement

	above, nextDrop time.Duration // CoDel
	drops           int
	dropping        bool

	chance  float64 // PIE
	was     time.Duration
	updated time.Duration
}

// queued is a packet in the bottleneck's queue.
type queued struct {
	leaves time.Duration
	size   int
}

// sendWild is send on such a path.
func (s *sim) sendWild(flow, payload int, arrives func()) {
	w, st, size := s.path.wild, &s.wild, payload+headers
	again := st.again
	st.again = false
	s.offered[flow]++
	ends := w.gone(s.now)
	lost := s.loses()
	lost = s.rng.Float64() < w.bigLoss && payload > 1000 || lost
	lost = s.rng.Float64() < w.resent && again || lost
	if lost || ends > 0 && !w.out.holds {
		return
	}
	if p := s.path.police; p > 0 {
		bucket := float64(w.bucket)
		if bucket == 0 {
			bucket = 32 << 10
		}
		if w.slot == 0 {
			s.tokens = min(s.tokens+p/8*(s.now-s.filled).Seconds(), bucket)
		} else if s.now/w.slot != s.filled/w.slot {
			s.tokens = p / 8 * w.slot.Seconds()
		}
		s.filled = s.now
		if s.tokens < float64(size) {
			s.dropped[flow]++
			return
		}
		s.tokens -= float64(size)
	}
	all := st.queue.all()
	n := 0
	for ; n < len(all) && all[n].leaves <= s.now; n++ {
		st.bytes -= all[n].size
	}
	st.queue.pop(n)
	holds := w.buffer
	if holds == 0 {
		holds = max(int(s.path.rate/8*s.path.queue.Seconds()), 2*size)
	}
	begins := max(s.free, s.now)
	if e := w.gone(begins); e > 0 && w.out.holds {
		begins = e
	}
	if st.bytes+size > holds || s.manages(begins, size) {
		s.dropped[flow]++
		return
	}
	s.delays += begins - s.now
	s.passed++
	s.free = begins + time.Duration(float64(size)*8/s.path.rate*1e9)
	st.queue.push(queued{s.free, size})
	st.bytes += size
	at := s.free + s.path.rtt/2
	if s.path.jitter > 0 {
		if slot := s.free / (5 * time.Millisecond); slot != s.slot {
			s.slot, s.extra = slot, time.Duration(s.rng.Int64N(int64(s.path.jitter)))
		}
		at += s.extra
	}
	if w.batch > 0 {
		at = (at + w.batch - 1) / w.batch * w.batch
	}
	at = max(at, s.last)
	s.last = at
	if s.rng.Float64() < s.path.reorder {
		at += s.path.rtt / 10
	}
	if s.rng.Float64() < w.strays {
		at += time.Duration(s.rng.Int64N(int64(w.stray)))
	}
	s.at(at, arrives)
	if s.rng.Float64() < w.copies {
		s.at(at+time.Duration(s.rng.Int64N(int64(ms))), arrives)
	}
}

// manages reports whether the queue's management drops a packet that would leave at a time.
func (s *sim) manages(begins time.Duration, size int) bool {
	st := &s.wild
	waits := begins - s.now
	switch s.path.wild.aqm {
	case coDel:
		const target, interval = 5 * ms, 100 * ms
		if waits < target || st.bytes <= size {
			st.above, st.dropping = 0, false
			return false
		}
		if st.above == 0 {
			st.above = begins + interval
			return false
		}
		gap := func() time.Duration { return time.Duration(float64(interval) / math.Sqrt(float64(max(st.drops, 1)))) }
		switch {
		case !st.dropping && begins >= st.above:
			st.dropping = true
			if begins-st.nextDrop < 16*interval && st.drops > 2 {
				st.drops -= 2
			} else {
				st.drops = 1
			}
			st.nextDrop = begins + gap()
			return true
		case st.dropping && begins >= st.nextDrop:
			st.drops++
			st.nextDrop += gap()
			return true
		}
	case pie:
		const target, update = 15 * ms, 15 * ms
		for st.updated+update <= s.now {
			st.updated += update
			now := max(s.free-st.updated, 0)
			d := 0.125*(now-target).Seconds() + 1.25*(now-st.was).Seconds()
			for limit, by := 0.1, 2.0; limit > 1e-6 && st.chance < limit; limit, by = limit/10, by*4 {
				if st.chance < limit/10 {
					continue
				}
				d /= by
				break
			}
			st.chance = min(max(st.chance+d, 0), 1)
			if now == 0 && st.was == 0 {
				st.chance *= 0.98
			}
			st.was = now
		}
		if s.free-s.now < target/2 && st.chance < 0.2 || st.bytes <= 2*size {
			return false
		}
		return s.rng.Float64() < st.chance
	}
	return false
}

// answerWild is answer on such a path.
func (s *sim) answerWild(arrives func()) {
	w, st := s.path.wild, &s.wild
	lost := s.loses()
	if s.rng.Float64() < w.ackLoss || lost || w.gone(s.now) > 0 && !w.out.holds {
		return
	}
	at := max(s.now, w.gone(s.now))
	if w.back > 0 {
		begins := max(st.backFree, at)
		if begins-at > w.backHeld {
			return
		}
		st.backFree = begins + time.Duration((headers+12)*8/w.back*1e9)
		at = st.backFree
	}
	at += s.path.rtt / 2
	if w.backEach > 0 {
		at = (at + w.backEach - 1) / w.backEach * w.backEach
	}
	at = max(at, st.backLast)
	st.backLast = at
	s.at(s.seen(at), arrives)
}

// blast sends more than any link takes. What arrives is all that the path can carry.
type blast struct {
	s     *sim
	id    int
	rate  float64
	bytes int64
}

func (b *blast) start() {
	got := false
	b.s.send(b.id, simMSS, func() {
		if !got {
			got = true
			b.bytes += simMSS
		}
	})
	b.s.at(b.s.now+time.Duration((simMSS+headers)*8/b.rate*1e9), b.start)
}

func (b *blast) delivered() int64 { return b.bytes }
