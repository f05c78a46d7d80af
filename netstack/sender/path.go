package sender

import (
	"math"
	"time"
)

// forgetAfter is how long a path may be idle before its rate is measured again by a new startup. By
// then others may fill it, or a radio link may have become slower. The round trip and the ambient
// loss are kept.
const forgetAfter = time.Minute

// never is a deadline that doesn't come.
const never = time.Duration(math.MaxInt64)

// Path sends the data of all connections to one peer. They share the route, so they share one
// congestion control, one window and one pacer (RFC 3124). A new connection starts with what the
// others have learned. Flows take turns instead of competing, and those that send little come
// first. A Path and its flows are not safe for concurrent use.
//
// Call a flow's Offer when there is more data, OnAck with each acknowledgement, and Next when Due
// says so, until it returns nothing.
type Path struct {
	control controller
	rates   rateSampler
	pacer   pacer
	gap     gap
	turns   Turns[*Flow]
	busy    agenda // the flows that have something unacknowledged
	sparse  sparse // those of them that send little

	flight  int           // bytes in flight
	missing int           // bytes to be retransmitted
	resent  uint64        // packets that were retransmitted
	sentAt  time.Duration // when something was last sent
	changed time.Duration // when packets began to take another path
}

// NewPath returns a new path. rtt is the round trip of a handshake, used until one is measured.
// packet is the payload of a full packet, in bytes. now is the time since some fixed moment, here
// and in all methods.
func NewPath(now, rtt time.Duration, packet int) *Path {
	return &Path{
		control: newController(now, roundTrips{rtt, rtt / 2}, packet),
		rates:   rateSampler{deliveredAt: now, firstAt: now}, pacer: pacer{next: now}, sentAt: now,
	}
}

// Changed forgets what was learned of the path, because packets now take another one. Data in
// flight stays accounted for.
func (p *Path) Changed(now time.Duration) {
	p.control = newController(now, p.control.path.trips, p.control.path.packet)
	p.control.round.ends = p.rates.delivered
	p.rates.firstAt, p.rates.deliveredAt, p.rates.limitedTo = now, now, 0
	p.changed = now
}

// Due returns when to call Next. ok is false if there is nothing to do before more is offered or
// acknowledged.
func (p *Path) Due() (at time.Duration, ok bool) {
	at = p.busy.due()
	if fits := p.fits(); fits && p.turns.Any() || !fits && p.sparse.first() != nil {
		at = min(at, p.pacer.due())
	}
	return at, at < never
}

// fits reports whether the window has room for a packet.
func (p *Path) fits() bool {
	return p.flight == 0 || p.flight+p.control.path.packet <= p.control.window()
}

// Next returns what to send now, and for which flow. It counts as sent. ok is false if nothing is
// due.
func (p *Path) Next(now time.Duration) (f *Flow, r Range, ok bool) {
	for f := p.busy.first(); f != nil && f.due <= now; f = p.busy.first() {
		f.tick(now)
		if f.timer.probe {
			f.timer.probe = false
			if r, ok := f.sendProbe(now); ok {
				return f, r, true
			}
		}
		f.settle()
	}
	full := !p.fits()
	if now < p.pacer.due() {
		p.pacer.waited = !full && p.turns.Any()
		return nil, Range{}, false
	}
	send := func(turn *Flow) int {
		g, size := turn.candidate()
		if size > 0 {
			f, r = turn, turn.send(now, g, size)
		}
		return size
	}
	if !full {
		if p.turns.Next(send) == 0 {
			p.limited()
		}
	} else {
		for turn := p.sparse.first(); turn != nil && send(turn) == 0; turn = p.sparse.first() {
			p.sparse.remove(turn) // Its packets are now larger than its receiver's window.
		}
		if f == nil {
			p.pacer.waited = false
		}
	}
	return f, r, f != nil
}

// limited records that no flow has anything to send, although there is room.
func (p *Path) limited() {
	if p.flight < p.control.window() && p.missing == 0 {
		p.rates.limit(p.flight)
	}
}

// departs records that a packet is sent, before it counts as in flight.
func (p *Path) departs(now time.Duration) departure {
	idle := p.flight == 0
	if idle {
		if now-p.sentAt > forgetAfter {
			p.control = p.control.restart(now)
			p.control.round.ends = p.rates.delivered
		}
		p.control.resumes(now)
	}
	p.sentAt = now
	d := p.rates.departs(now, idle)
	d.number = p.gap.departs(now, idle)
	return d
}

// Close removes a flow.
func (p *Path) Close(f *Flow) {
	p.flight -= f.counted
	p.missing -= f.missing
	f.counted, f.missing = 0, 0
	p.leave(f)
	p.turns.Remove(f)
}

func (p *Path) leave(f *Flow) {
	p.busy.remove(f)
	p.sparse.remove(f)
}

// Resent returns how many packets were retransmitted in total.
func (p *Path) Resent() uint64 { return p.resent }

// RTT returns the smoothed round trip, or the handshake's until one is measured.
func (p *Path) RTT() time.Duration { return p.control.path.trips.smoothed }

// Window returns how much may be in flight now, in bytes.
func (p *Path) Window() int { return p.control.window() }

// Limit is what keeps a path from sending more.
type Limit uint8

// What limits a path.
const (
	LimitNone       Limit = iota // nothing was sent recently
	LimitData                    // there is nothing more to send, or no room at the receiver
	LimitBandwidth               // the path's bandwidth
	LimitCongestion              // loss, or a queue shared with others
	LimitPolicer                 // a rate limiter that drops packets above its rate
)

// String returns the limit as a word.
func (l Limit) String() string {
	return [...]string{"none", "data", "bandwidth", "congestion", "policer"}[l]
}

// State describes a path as far as it is known.
type State struct {
	Rate        float64       // maximum payload in bytes per second; 0 is unknown
	RTT         time.Duration // smoothed
	BaseRTT     time.Duration // without a queue; 0 is unknown
	Loss        float64       // share of packets that are lost at any rate
	Sample      int64         // packets that Loss was measured over
	Congested   float64       // share of packets that queues dropped recently
	Policed     float64       // bytes per second that a rate limiter lets through; 0 is none
	InFlight    int           // bytes
	Window      int           // bytes that may be in flight
	Limit       Limit
	Lost, Whole int64         // packets in total: lost while the path was not interrupted; and those or delivered
	Idle        time.Duration // since something was last sent
}

// State returns what is known of the path now.
func (p *Path) State(now time.Duration) State {
	c := &p.control
	s := State{
		Rate: c.path.bandwidth(), RTT: c.path.trips.smoothed, BaseRTT: c.path.base,
		Loss: min(c.judge.noQueue.share(), c.judge.all.share(), c.judge.afterPrompt()), Sample: int64(c.judge.noQueue.all),
		InFlight: p.flight, Window: c.window(), Lost: int64(c.judge.lost), Whole: int64(c.judge.whole),
		Idle: now - p.sentAt,
	}
	s.Congested = c.judge.all.share() - s.Loss
	if c.path.policed() { // The losses may be the limiter's.
		s.Policed, s.Loss, s.Sample = c.path.limit, 0, 0
	}
	switch {
	case s.Idle > max(10*s.RTT, time.Second) && p.flight == 0:
		s.Limit = LimitNone
	case p.rates.limitedTo > 0:
		s.Limit = LimitData
	case c.rivaled || c.bound.bytes > 0 && s.Window >= c.bound.bytes && s.InFlight > s.Window*7/8:
		s.Limit = LimitCongestion
	case s.Policed > 0:
		s.Limit = LimitPolicer
	default:
		s.Limit = LimitBandwidth
	}
	return s
}
