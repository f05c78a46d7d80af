package sender

import "time"

// discardAfter is after how many timeouts in a row the receiver is taken to have discarded what it
// had selectively acknowledged. RFC 2018 §8 has it after the first; but where losses are
// common so are timeouts, and a large window would be sent again each time.
const discardAfter = 3

// timer has a flow's one timer, which runs while something isn't acknowledged. It stands for four:
// the reordering window's (RFC 8985 §6.2), the tail loss probe's (§7), the retransmission
// timeout (RFC 6298 §5, RFC 8985 §6.3), and the probe of a closed window (RFC 9293 §3.8.6.1).
type timer struct {
	since   time.Duration // something arrived, or was sent when nothing was in flight
	sentAt  time.Duration // something was sent last
	reorder time.Duration // when to look for losses again; 0 is at the next acknowledgement
	backoff int           // timeouts since something arrived
	probed  bool          // a tail loss probe was sent since something arrived
	probe   bool          // one packet is to be sent, whatever the window
}

// progress takes in that something arrived.
func (t *timer) progress(now time.Duration) {
	t.since, t.backoff, t.probed, t.probe = now, 0, false, false
}

// expiry is when the timer is due. Something isn't acknowledged.
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

// probes reports whether a tail loss probe may be due: nothing is known to be missing, and
// there was none since something arrived.
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
		found, f.timer.reorder = f.loss.detect(&f.board, now, window)
		c.count(found, 0)
		return
	}
	timeout := now >= f.timer.since+c.path.trips.timeout(f.timer.backoff)
	switch {
	case !timeout && f.probes():
		f.timer.probed, f.timer.probe = true, true
		f.timer.since = now // RFC 8985 §7.3: the timeout begins again.
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

// sendProbe sends one packet although the window may not allow it: what is missing, else new
// data, else the last segment again. Beyond the receiver's window it is a single byte.
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
