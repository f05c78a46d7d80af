package sender

import "time"

// discardAfter is the number of timeouts in a row after which the receiver is assumed to have
// discarded what it had selectively acknowledged. RFC 2018 §8 assumes so after the first. But where
// losses are common so are timeouts, and a large window would be retransmitted each time.
const discardAfter = 3

// timer is a flow's only timer. It runs while something isn't acknowledged, and combines four: the
// reordering window (RFC 8985 §6.2), the tail loss probe (§7), the retransmission timeout (RFC 6298
// §5, RFC 8985 §6.3), and the zero-window probe (RFC 9293 §3.8.6.1).
type timer struct {
	since   time.Duration // something arrived, or was sent while nothing was in flight
	sentAt  time.Duration // something was last sent
	reorder time.Duration // when to check for losses again; 0 is at the next acknowledgement
	backoff int           // timeouts since something arrived
	probed  bool          // a tail loss probe was sent since something arrived
	probe   bool          // send one packet, whatever the window
}

// progress records that something arrived.
func (t *timer) progress(now time.Duration) {
	t.since, t.backoff, t.probed, t.probe = now, 0, false, false
}

// expiry returns when the timer is due. Something must be unacknowledged.
func (f *Flow) expiry() time.Duration {
	trips := &f.path.control.path.trips
	at := f.timer.since + trips.timeout(f.timer.backoff)
	if f.timer.reorder > 0 {
		at = min(at, f.timer.reorder)
	}
	if f.probes() {
		at = min(at, max(f.timer.since, f.timer.sentAt)+probeTimeout(trips, len(f.board.segments.all()) == 1))
	}
	return at
}

// probes reports whether a tail loss probe may be due: nothing is known to be missing, and none was
// sent since something arrived.
func (f *Flow) probes() bool {
	return !f.timer.probed && f.timer.backoff == 0 && f.board.missing == 0 && f.board.flight > 0
}

// tick does what is due.
func (f *Flow) tick(now time.Duration) {
	if f.idle() || now < f.expiry() {
		return
	}
	c := &f.path.control
	window := f.window(now)
	if f.timer.reorder > 0 && now >= f.timer.reorder {
		var found losses
		found, f.timer.reorder = f.loss.detect(&f.board, &c.path, now, window)
		c.count(found, 0)
		return
	}
	timeout := now >= f.timer.since+c.path.trips.timeout(f.timer.backoff)
	switch {
	case !timeout && f.probes():
		f.timer.probed, f.timer.probe = true, true
		f.timer.since = now // RFC 8985 §7.3: restart the timeout.
	case !timeout:
	case f.board.flight == 0:
		f.timer.backoff++
		f.timer.since, f.timer.probe = now, true
	default:
		f.timer.backoff++
		f.timer.since = now
		f.loss.expire(&f.board, now, window)
		c.timeout()
		if f.timer.backoff >= discardAfter {
			f.board.renege()
		}
		f.timer.probe = true
	}
}

// sendProbe sends one packet even if the window does not allow it: a missing segment, else new
// data, else the last segment again. Beyond the receiver's window it sends a single byte.
func (f *Flow) sendProbe(now time.Duration) (Range, bool) {
	if g := f.board.firstMissing(); g != nil {
		size := min(g.Size(), f.mss)
		if !g.Start.Before(f.edge) {
			size = 1
		}
		return f.send(now, g, size), true
	}
	if left := f.board.nxt.To(f.end); left > 0 {
		room := f.board.nxt.To(f.edge)
		switch {
		case room > 0:
			return f.send(now, nil, min(left, room, f.mss)), true
		case f.board.flight == 0:
			return f.send(now, nil, 1), true
		}
	}
	all := f.board.segments.all()
	for i := len(all) - 1; i >= 0; i-- {
		if g := &all[i]; g.state == flying {
			return f.send(now, g, min(g.Size(), f.mss)), true
		}
	}
	return Range{}, false
}
