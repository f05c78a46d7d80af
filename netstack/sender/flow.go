package sender

import "time"

// Flow sends one connection's data. It says what to send and when, as ranges of sequence
// numbers; the data, and the packets, are its user's. A FIN is a sequence number like any
// other. It is not safe for concurrent use.
//
// Its user calls Offer when there is more data, OnAck with each acknowledgement, and Next
// when Due says so, until it gives nothing.
type Flow struct {
	board   scoreboard
	loss    lossDetector
	rates   rateSampler
	control controller
	pacer   pacer
	timer   timer

	changed time.Duration // when the path did

	mss  int
	end  Seq // of what was offered
	edge Seq // of what the receiver has room for
}

// Config is what is known of a connection when it begins.
type Config struct {
	Start  Seq           // of the first byte
	MSS    int           // the largest payload of a packet, in bytes
	Window int           // what the receiver has room for, in bytes
	RTT    time.Duration // of the handshake
}

// Ack is what an acknowledgement says.
type Ack struct {
	Ack    Seq
	Window int     // scaled, in bytes
	Blocks []Range // of SACK, as they came
}

// New makes a flow. now is the time since any one moment, here and in all methods.
func New(now time.Duration, c Config) *Flow {
	return &Flow{
		board: newScoreboard(c.Start), loss: newLossDetector(),
		control: newController(now, roundTrips{c.RTT, c.RTT / 2}, c.MSS),
		rates:   rateSampler{deliveredAt: now, firstAt: now}, pacer: pacer{next: now},
		mss: c.MSS, end: c.Start, edge: c.Start + Seq(c.Window),
	}
}

// Offer says that there is data up to end.
func (f *Flow) Offer(now time.Duration, end Seq) {
	if f.end.Before(end) {
		if f.idle() {
			f.timer.since = now
		}
		f.end = end
	}
}

// SetMSS changes the largest payload of a packet, in bytes: the path's MTU has changed.
// What is sent again is cut to it too.
func (f *Flow) SetMSS(n int) { f.mss = n }

// PathChanged forgets what was learned of the path, because packets take another one now. What is on
// its way stays accounted for.
func (f *Flow) PathChanged(now time.Duration) {
	f.control = newController(now, f.control.path.trips, f.mss)
	f.control.round.ends = f.rates.delivered + int64(f.board.flight)
	f.loss.pathChanged(now, f.control.path.trips.smoothed)
	f.changed = now
}

// Unacknowledged is the first byte that isn't acknowledged: what comes before isn't needed
// any more.
func (f *Flow) Unacknowledged() Seq { return f.board.una }

// idle reports whether everything offered is acknowledged.
func (f *Flow) idle() bool { return f.board.una == f.end }

// Due is when to call Next; ok is false if there is nothing to do before more is offered or
// acknowledged.
func (f *Flow) Due() (at time.Duration, ok bool) {
	if f.timer.probe {
		return 0, true
	}
	if f.idle() {
		return 0, false
	}
	at = f.expiry()
	if _, size := f.candidate(); size > 0 && f.fits(size) {
		at = min(at, f.pacer.next)
	}
	return at, true
}

// fits reports whether the window has room for size bytes.
func (f *Flow) fits(size int) bool {
	return f.board.flight == 0 || f.board.flight+size <= f.control.window()
}

// candidate is what to send next, if it may be sent: a missing segment, or nil for new data. size
// is 0 if there is nothing.
func (f *Flow) candidate() (g *segment, size int) {
	if g := f.board.firstMissing(); g != nil && g.Start.Before(f.edge) {
		return g, min(g.Size(), f.mss)
	}
	left, room := f.board.nxt.To(f.end), f.board.nxt.To(f.edge)
	size = min(left, room, f.mss)
	if size < min(left, f.mss) && !f.quiet() {
		return nil, 0 // The window has room for a part: more will come (RFC 9293 §3.8.6.2.1).
	}
	return nil, max(size, 0)
}

// quiet reports whether no acknowledgement is to be expected.
func (f *Flow) quiet() bool { return f.board.flight == 0 && f.board.missing == 0 }

// Next is what to send now; ok is false if nothing is due. It counts as sent.
func (f *Flow) Next(now time.Duration) (r Range, ok bool) {
	f.tick(now)
	if f.timer.probe {
		f.timer.probe = false
		return f.sendProbe(now)
	}
	g, size := f.candidate()
	if size == 0 {
		if f.board.missing == 0 && f.board.flight < f.control.window() {
			f.rates.limit(f.board.flight)
		}
		return Range{}, false
	}
	if !f.fits(size) {
		f.pacer.waited = false
		return Range{}, false
	}
	if now < f.pacer.next {
		f.pacer.waited = true
		return Range{}, false
	}
	return f.send(now, g, size), true
}

// send books a segment, a new one if g is nil, as sent.
func (f *Flow) send(now time.Duration, g *segment, size int) Range {
	departed := f.rates.departs(now, f.board.flight == 0)
	if f.quiet() {
		f.timer.since = now
		f.control.resumes(now)
	}
	if g == nil {
		g = f.board.send(size)
	} else {
		g = f.board.resend(g, size)
	}
	g.departed = departed
	f.timer.sentAt = now
	f.loss.departs(g.Start, now)
	f.pacer.sent(now, g.Size(), f.control.pacing(), f.control.path.shortest())
	return g.Range
}

// OnAck takes in an acknowledgement.
func (f *Flow) OnAck(now time.Duration, a Ack) {
	if a.Ack.Before(f.board.una) || f.board.nxt.Before(a.Ack) {
		return // An old one, or of what was never sent.
	}
	advanced := a.Ack != f.board.una
	f.slide(a, advanced)
	path := &f.control.path
	var (
		s      sample
		newest departure
		any    bool
		again  bool
	)
	delivered := func(g *segment) {
		late := f.loss.arrives(g, now, path.minRTT) || g.state == missing
		if late && g.lost {
			s.lost -= g.Size()
			f.loss.widen(now, path.trips.smoothed)
		}
		s.newly += g.Size()
		again = again || g.resent || g.lost
		if g.departed.at >= f.changed {
			s.rtt = now - g.departed.at // The last one's: they come in order.
		}
		if d := g.departed; !any || d.delivered > newest.delivered || d.delivered == newest.delivered && d.at >= newest.at {
			newest, any = d, true
		}
	}
	if f.board.acknowledge(a.Ack, delivered) {
		f.board.renege()
	}
	for i, r := range a.Blocks {
		if i == 0 && duplicate(a) {
			f.loss.widen(now, path.trips.smoothed)
			continue
		}
		f.board.selective(r, delivered)
	}
	if advanced || s.newly > 0 {
		f.timer.progress(now)
	}
	if again { // What came before the gap that is filled may have arrived long ago.
		s.rtt = 0
	}
	if any {
		f.rates.delivered += int64(s.newly)
		f.rates.deliveredAt = now
		f.rates.sample(&s, newest, path.minRTT)
	}
	lost, next := f.loss.detect(&f.board, now, f.loss.window(now, path.shortest(), path.trips.smoothed))
	f.timer.reorder = next
	s.lost += lost
	s.flight = f.board.flight
	f.control.onAck(now, s)
}

// slide moves the edge of the receiver's window. It goes back only with data that is newly
// acknowledged: else an acknowledgement that came late would close the window.
func (f *Flow) slide(a Ack, advanced bool) {
	if edge := a.Ack + Seq(a.Window); advanced || f.edge.Before(edge) {
		if f.edge.Before(edge) && f.quiet() {
			f.timer.backoff = 0 // It was closed, and opens.
		}
		f.edge = edge
	}
}

// duplicate reports whether the first block tells of a segment that arrived twice: RFC 2883 §4.
func duplicate(a Ack) bool {
	first := a.Blocks[0]
	if first.Start.Before(a.Ack) {
		return true
	}
	return len(a.Blocks) > 1 && !first.Start.Before(a.Blocks[1].Start) && !a.Blocks[1].End.Before(first.End)
}
