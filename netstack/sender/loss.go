package sender

import "time"

const (
	// windowSteps is in how many steps of a quarter of the least round trip the reordering
	// window grows at most; RFC 8985 §6.2 bounds it by the smoothed round trip besides.
	windowSteps = 16
	// windowKept is for how many round trips without a late segment a larger window is
	// kept: RFC 8985 §6.2 counts 16 recoveries, which may take a round trip each.
	windowKept = 16
	// delayedAck is how long a receiver may wait with the acknowledgement of a single
	// segment (RFC 8985 §7.2); Linux's is 40 ms, gVisor's less.
	delayedAck = 40 * time.Millisecond
)

// transmission is one copy of a segment.
type transmission struct {
	start Seq
	at    time.Duration
}

// losses are what was found lost.
type losses struct {
	lost     int           // bytes
	departed time.Duration // when the last of it had
}

// lossDetector finds losses by time (RFC 8985, RACK-TLP): a segment is lost when one that
// was sent later has arrived, and its own acknowledgement is late by a reordering window.
// The window is never zero, whatever §6.2 allows while no reordering was seen: a quarter of
// a round trip is cheap beside a congestion window that is cut for nothing.
type lossDetector struct {
	sent fifo[transmission] // in order of time

	// Of the segment that was sent last of those that have arrived: RACK.xmit_ts and RACK.rtt.
	newestAt, newestRTT time.Duration

	steps int           // of the reordering window
	keep  time.Duration // the window is kept until then
}

func newLossDetector() lossDetector { return lossDetector{steps: 1} }

// departs takes in that a segment is sent.
func (l *lossDetector) departs(start Seq, now time.Duration) {
	l.sent.push(transmission{start, now})
}

// arrives takes in that a segment is delivered: RFC 8985 §6.2, steps 1 and 2. An
// acknowledgement that comes sooner after the segment was sent again than any round trip
// takes is the first copy's: it was late, not lost. That is reported.
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

// widen makes the reordering window larger, because a segment was late that had been taken
// for lost (RFC 8985 §6.2, step 4).
func (l *lossDetector) widen(now, smoothed time.Duration) {
	l.steps = min(l.steps+1, windowSteps)
	l.keep = now + windowKept*smoothed
}

// window is the reordering window.
func (l *lossDetector) window(now, minRTT, smoothed time.Duration) time.Duration {
	if now > l.keep {
		l.steps = 1
	}
	return min(time.Duration(l.steps)*max(minRTT/4, granularity), max(smoothed, granularity))
}

// window is the flow's reordering window. After packets began to take another path those of the
// one before may come by up to a round trip after those of the present one.
func (f *Flow) window(now time.Duration) time.Duration {
	m := &f.path.control.path
	w := f.loss.window(now, m.shortest(), m.trips.smoothed)
	if since := now - f.path.changed; f.path.changed > 0 && since < 2*m.trips.smoothed {
		w = max(w, m.trips.smoothed)
	}
	return w
}

// detect marks what is lost (RFC 8985 §6.2, step 5). next is when to look again, 0 when another
// acknowledgement comes.
func (l *lossDetector) detect(b *scoreboard, now, window time.Duration) (found losses, next time.Duration) {
	n := 0
	for all := l.sent.all(); n < len(all); n++ {
		t := all[n]
		g := b.find(t.start)
		if g == nil || g.state != flying || g.departed.at != t.at {
			continue // Acknowledged, or another copy was sent since.
		}
		if t.at >= l.newestAt {
			break
		}
		if due := t.at + l.newestRTT + window; due > now {
			next = due
			break
		}
		b.lose(g)
		g.lost = true
		found.lost, found.departed = found.lost+g.Size(), t.at
	}
	if l.sent.pop(n); l.sent.empty() {
		l.sent = fifo[transmission]{}
	}
	return found, next
}

// expire marks what a retransmission timeout takes for lost: the first segment, and those that
// were sent longer ago than a round trip and the window (RFC 8985 §6.3). None counts as lost: it
// may be the acknowledgements that are late.
func (l *lossDetector) expire(b *scoreboard, now, window time.Duration) {
	b.each(func(g *segment) {
		if g.Start == b.una || g.departed.at+l.newestRTT+window <= now {
			b.lose(g)
		}
	})
}

// probeTimeout is how long after the last of several segments a tail loss probe is sent, or
// of a single one (RFC 8985 §7.2).
func probeTimeout(r *roundTrips, single bool) time.Duration {
	d := 2 * r.smoothed
	if single {
		d += delayedAck
	}
	return d
}
