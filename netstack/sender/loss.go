package sender

import "time"

const (
	// windowSteps is the maximum of the reordering window, in quarters of the minimum round trip.
	// RFC 8985 §6.2 also bounds it by the smoothed round trip.
	windowSteps = 16
	// windowKept is how many round trips without a late segment a larger window is kept. RFC 8985
	// §6.2 counts 16 recoveries, which may take a round trip each.
	windowKept = 16
	// delayedAck is how long a receiver may delay the acknowledgement of a single segment (RFC 8985
	// §7.2). Linux delays it by 40 ms, gVisor by less.
	delayedAck = 40 * time.Millisecond
)

// transmission is one copy of a segment.
type transmission struct {
	start Seq
	at    time.Duration
}

// losses is what was found lost.
type losses struct {
	lost     int           // bytes
	waits    byWait        // bytes of these, and of what was delivered
	departed time.Duration // when the last of them departed
}

// lossDetector detects losses by time (RFC 8985, RACK-TLP). A segment is lost when one that was
// sent later has arrived, and its own acknowledgement is late by a reordering window. The window is
// never zero, although §6.2 allows that while no reordering was seen: a quarter of a round trip is
// cheap compared with an unnecessary cut of the congestion window.
type lossDetector struct {
	sent fifo[transmission] // in order of time

	// Of the latest sent segment that has arrived: RACK.xmit_ts and RACK.rtt.
	newestAt, newestRTT time.Duration

	steps int           // of the reordering window
	keep  time.Duration // until when the window is kept

	gap *gap // of the path
}

const (
	// gapPackets and gapTime are how many packets in a row an interruption loses at least, and in
	// which time they departed. gapPassed is how many times as many must have passed before.
	gapPackets, gapTime, gapPassed = overwhelmed, 20 * time.Millisecond, 4
	// gapMost bounds the stored departures, in packets: more than are ever in flight. Without it they
	// would grow as long as a receiver lets every packet be retransmitted, and nothing counts as
	// arrived.
	gapMost = 1 << 16
)

// gap detects short interruptions of a path, such as a radio link's handover: all packets of some
// time are lost, whichever flow they belong to. What was lost then is no sign of congestion, as
// after a retransmission timeout. A queue or a rate limiter that overflows lets a packet pass now
// and then. If that is seldom, or if it drops all packets of some time, few pass between two gaps.
//
// The path numbers its packets from 1.
type gap struct {
	newest   int                 // the latest sent packet that has arrived
	sent     fifo[time.Duration] // when those after it departed
	from, to int                 // no packet between these has arrived
	before   int                 // packets that arrived between the last gap and this one
	passed   int                 // packets that arrived since
	lost     int                 // packets found lost in this gap, and in those right before
}

// departs records that a packet is sent, and returns its number. After a time with nothing in
// flight, what came before plays no role, nor does it if there is too much of it.
func (p *gap) departs(now time.Duration, idle bool) (number int) {
	if n := len(p.sent.all()); idle || n == gapMost {
		p.newest += n
		p.sent.pop(n)
	}
	p.sent.push(now)
	return p.newest + len(p.sent.all())
}

// arrived records that a packet has arrived.
func (p *gap) arrived(number int) {
	switch n := number - p.newest; {
	case n > 0:
		missed := p.sent.all()[:n-1]
		if len(missed) >= gapPackets && missed[n-2]-missed[0] >= gapTime {
			p.from, p.to = p.newest, number
			if p.passed > gapPackets { // Otherwise the gap before goes on.
				p.before, p.passed, p.lost = p.passed, 0, 0
			}
		}
		p.sent.pop(n)
		p.newest = number
	case p.from < number && number < p.to:
		if p.from = number; p.to-p.from <= gapPackets { // They were only acknowledged later.
			p.from = p.to
			p.passed += p.before - gapPassed*p.lost
			p.before, p.lost = 0, 0
		}
	}
	p.passed++
}

// lose records that a packet is lost, and reports whether that was in an interruption.
func (p *gap) lose(number int) bool {
	if number <= p.from || p.to <= number {
		return false
	}
	p.lost++
	return p.before >= gapPassed*p.lost
}

func newLossDetector(g *gap) lossDetector { return lossDetector{steps: 1, gap: g} }

// departs records that a segment is sent.
func (l *lossDetector) departs(start Seq, now time.Duration) {
	l.sent.push(transmission{start, now})
}

// arrives records that a segment is delivered: RFC 8985 §6.2, steps 1 and 2. It reports whether the
// segment was late, not lost: an acknowledgement sooner after the retransmission than any round
// trip takes is for the first copy.
func (l *lossDetector) arrives(g *segment, now, minRTT time.Duration) (late bool) {
	rtt := now - g.departed.at
	if g.resent && rtt < minRTT {
		return true
	}
	if g.departed.at >= l.newestAt {
		l.newestAt, l.newestRTT = g.departed.at, rtt
	}
	return false
}

// widen enlarges the reordering window, because a segment that had been considered lost was only
// late (RFC 8985 §6.2, step 4).
func (l *lossDetector) widen(now, smoothed time.Duration) {
	l.steps = min(l.steps+1, windowSteps)
	l.keep = now + windowKept*smoothed
}

// window returns the reordering window.
func (l *lossDetector) window(now, minRTT, smoothed time.Duration) time.Duration {
	if now > l.keep {
		l.steps = 1
	}
	return min(time.Duration(l.steps)*max(minRTT/4, granularity), max(smoothed, granularity))
}

// window returns the flow's reordering window. After a change of path, packets on the old one may
// arrive up to a round trip after those on the new one.
func (f *Flow) window(now time.Duration) time.Duration {
	m := &f.path.control.path
	w := f.loss.window(now, m.shortest(), m.trips.smoothed)
	if since := now - f.path.changed; f.path.changed > 0 && since < 2*m.trips.smoothed {
		w = max(w, m.trips.smoothed)
	}
	return w
}

// detect marks what is lost (RFC 8985 §6.2, step 5). next is when to check again, 0 if that
// is at the next acknowledgement.
func (l *lossDetector) detect(b *scoreboard, path *pathModel, now, window time.Duration) (found losses, next time.Duration) {
	n := 0
	for all := l.sent.all(); n < len(all); n++ {
		t := all[n]
		g := b.find(t.start)
		if g == nil || g.state != flying || g.departed.at != t.at {
			continue // It arrived, or was retransmitted since.
		}
		if t.at >= l.newestAt {
			break
		}
		if due := t.at + l.newestRTT + window; due > now {
			next = due
			break
		}
		b.lose(g)
		if !l.gap.lose(g.departed.number) {
			g.lost, found.departed = true, t.at
			found.lost += g.Size()
			g.wait = path.wait(t.at)
			found.waits.count(g.wait, g.Size(), 0)
		}
	}
	if l.sent.pop(n); l.sent.empty() {
		l.sent = fifo[transmission]{}
	}
	return found, next
}

// expire marks what a retransmission timeout considers lost: the first segment, and those that were
// sent longer ago than a round trip and the window (RFC 8985 §6.3). None counts as lost, because
// the acknowledgements may be late.
func (l *lossDetector) expire(b *scoreboard, now, window time.Duration) {
	b.each(func(g *segment) {
		if g.Start == b.una || g.departed.at+l.newestRTT+window <= now {
			b.lose(g)
		}
	})
}

// probeTimeout returns how long after the latest of several segments, or after a single one, a tail
// loss probe is sent (RFC 8985 §7.2).
func probeTimeout(r *roundTrips, single bool) time.Duration {
	d := 2 * r.smoothed
	if single {
		d += delayedAck
	}
	return d
}
