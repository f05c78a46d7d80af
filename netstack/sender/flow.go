package sender

import "time"

// Flow sends one connection's data. It decides which ranges of sequence numbers to send or
// retransmit. The data and the packets are its caller's. A FIN is a sequence number like any other.
// The path decides when the flow may send.
type Flow struct {
	path  *Path
	board scoreboard
	loss  lossDetector
	timer timer

	counted, missing int           // this flow's part of path.flight and path.missing
	due              time.Duration // when the timer is due
	inBusy, inSparse int           // its positions in path.busy and path.sparse, from 1; 0: absent

	mss   int
	burst int // bytes sent since there was nothing to send for a quarter of a round trip
	end   Seq // of the offered data
	edge  Seq // of the receiver's window
}

// Config is what is known of a connection when it begins.
type Config struct {
	Start  Seq // of the first byte
	MSS    int // the largest payload of a packet, in bytes
	Window int // the receiver's window, in bytes
}

// Ack is what an acknowledgement says.
type Ack struct {
	Ack    Seq
	Window int     // scaled, in bytes
	Blocks []Range // of SACK, in order of arrival
}

// Open returns a new flow.
func (p *Path) Open(c Config) *Flow {
	return &Flow{
		path: p, board: newScoreboard(c.Start), loss: newLossDetector(&p.gap),
		mss: c.MSS, end: c.Start, edge: c.Start + Seq(c.Window),
	}
}

// Offer announces that data up to end is available.
func (f *Flow) Offer(now time.Duration, end Seq) {
	if !f.end.Before(end) {
		return
	}
	if f.board.nxt == f.end && now-f.timer.sentAt > f.path.RTT()/4 {
		f.burst = 0
	}
	if f.idle() {
		f.timer.since = now
	}
	f.end = end
	f.settle()
}

// account updates the path's count of what is in flight.
func (f *Flow) account() {
	f.path.flight += f.board.flight - f.counted
	f.path.missing += f.board.missing - f.missing
	f.counted, f.missing = f.board.flight, f.board.missing
}

// settle updates all that the path knows of the flow.
func (f *Flow) settle() {
	f.account()
	p := f.path
	if f.idle() && !f.timer.probe {
		p.leave(f)
		return
	}
	due := f.expiry()
	if f.timer.probe {
		due = 0
	}
	p.busy.put(f, due)
	_, size := f.candidate()
	if size > 0 {
		p.turns.Wake(f)
	}
	p.sparse.set(f, size > 0 && f.burst+size <= minWindow*p.control.path.packet)
}

// SetMSS changes the largest payload of a packet, in bytes, after a change of the path's MTU.
// Retransmissions are cut to it too.
func (f *Flow) SetMSS(n int) { f.mss = n }

// Unacknowledged returns the first byte that isn't acknowledged. Bytes before it are no longer
// needed.
func (f *Flow) Unacknowledged() Seq { return f.board.una }

// Sent returns the end of what was sent.
func (f *Flow) Sent() Seq { return f.board.nxt }

// InFlight returns how many bytes are believed to be on their way.
func (f *Flow) InFlight() int { return f.board.flight }

// idle reports whether everything offered is acknowledged.
func (f *Flow) idle() bool { return f.board.una == f.end }

// candidate returns what to send next, if it may be sent: a missing segment, or nil for new data.
// size is 0 if there is nothing.
func (f *Flow) candidate() (g *segment, size int) {
	if g := f.board.firstMissing(); g != nil && g.Start.Before(f.edge) {
		return g, min(g.Size(), f.mss)
	}
	left, room := f.board.nxt.To(f.end), f.board.nxt.To(f.edge)
	size = min(left, room, f.mss)
	if size < min(left, f.mss) && !f.quiet() {
		return nil, 0 // The window has room for a part: wait for more (RFC 9293 §3.8.6.2.1).
	}
	return nil, max(size, 0)
}

// quiet reports whether no acknowledgement is expected.
func (f *Flow) quiet() bool { return f.board.flight == 0 && f.board.missing == 0 }

// send records a segment as sent, a new one if g is nil.
func (f *Flow) send(now time.Duration, g *segment, size int) Range {
	departed := f.path.departs(now)
	if f.quiet() {
		f.timer.since = now
	}
	if g == nil {
		g = f.board.send(size)
		// There was no more to send, so its rate says little of the path. Small packets are paced
		// by more than their payload: their rate would lower the bandwidth, and that the pacing
		// rate.
		departed.limited = departed.limited || size < f.mss
	} else {
		g = f.board.resend(g, size)
		f.path.resent++
	}
	g.departed = departed
	f.timer.sentAt = now
	f.burst += g.Size()
	f.loss.departs(g.Start, now)
	c := &f.path.control
	f.path.pacer.sent(now, g.Size(), c.pacing(), c.path.shortest())
	r := g.Range
	f.settle()
	return r
}

// OnAck handles an acknowledgement.
func (f *Flow) OnAck(now time.Duration, a Ack) {
	if a.Ack.Before(f.board.una) || f.board.nxt.Before(a.Ack) {
		return // It is old, or acknowledges what was never sent.
	}
	advanced := a.Ack != f.board.una
	f.slide(a, advanced)
	p := f.path
	path := &p.control.path
	var (
		s      = sample{prior: -1} // none, unless something took the current path
		newest departure
		fresh  int // the part of s.newly that took the current path
		any    bool
		again  bool
	)
	delivered := func(g *segment) {
		late := f.loss.arrives(g, now, path.minRTT)
		if !late { // Otherwise the number is not that of what arrived.
			p.gap.arrived(g.departed.number)
		}
		if (late || g.state == missing) && g.lost {
			g.lost = false
			s.lost -= g.Size()
			s.waits.count(g.wait, -g.Size(), 0)
			f.loss.widen(now, path.trips.smoothed)
		}
		s.newly += g.Size()
		again = again || g.resent || g.lost || g.state == missing
		if g.departed.at < p.changed {
			return // It says nothing about the current path.
		}
		if rtt := now - g.departed.at; s.rtt == 0 || rtt < s.rtt {
			s.rtt = rtt // That of the newest: acknowledgements of others may have been lost.
		}
		fresh += g.Size()
		s.waits.count(path.wait(g.departed.at), 0, g.Size())
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
	if again { // What came before the filled gap may have arrived long ago.
		s.rtt = 0
	}
	if any {
		p.rates.delivered += int64(fresh)
		p.rates.deliveredAt = now
		p.rates.sample(&s, newest, path.minRTT)
	}
	known := s.losses
	s.losses, f.timer.reorder = f.loss.detect(&f.board, path, now, f.window(now))
	s.lost += known.lost
	s.waits.add(known.waits)
	f.account()
	s.flight, s.tail = p.flight, f.counted == 0 && s.newly <= f.mss
	p.control.onAck(now, s)
	f.settle()
}

// slide moves the edge of the receiver's window. It moves back only with newly acknowledged data,
// or a late acknowledgement would close the window.
func (f *Flow) slide(a Ack, advanced bool) {
	if edge := a.Ack + Seq(a.Window); advanced || f.edge.Before(edge) {
		if f.edge.Before(edge) && f.quiet() {
			f.timer.backoff = 0 // It was closed, and opens.
		}
		f.edge = edge
	}
}

// duplicate reports whether the first block reports a segment that arrived twice (D-SACK, RFC 2883
// §4).
func duplicate(a Ack) bool {
	first := a.Blocks[0]
	if first.Start.Before(a.Ack) {
		return true
	}
	return len(a.Blocks) > 1 && !first.Start.Before(a.Blocks[1].Start) && !a.Blocks[1].End.Before(first.End)
}
