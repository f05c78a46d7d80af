package sender

import (
	"math"
	"time"
)

// forgetAfter is how long a path may be idle before its rate is found out again, by a new
// startup: by then somebody else may fill it, or a radio link may have become slower. The
// round trip and the ambient loss are kept.
const forgetAfter = time.Minute

// never is a deadline that doesn't come.
const never = time.Duration(math.MaxInt64)

// Path sends the data of all connections to one peer. They share the way there, so there is
// one congestion control, one window and one pacer for all of them (RFC 3124): a connection
// begins with what others have learned, and flows don't compete with each other but take
// turns, those that send little first. It is not safe for concurrent use, and neither are its
// flows.
//
// Its user calls a flow's Offer when there is more data, OnAck with each acknowledgement, and
// Next when Due says so, until it gives nothing.
type Path struct {
	control controller
	rates   rateSampler
	pacer   pacer
	turns   Turns[*Flow]
	busy    agenda // the flows that have something unacknowledged
	sparse  sparse // those of them that send little

	flight  int           // bytes that are flying
	missing int           // that are to be sent again
	resent  uint64        // packets that were sent again
	sentAt  time.Duration // when something was sent last
	changed time.Duration // when packets began to take another way
}

// NewPath makes a path. rtt is the round trip of a handshake, which is not believed for
// long; packet is the payload of a full packet, in bytes. now is the time since any one
// moment, here and in all methods.
func NewPath(now, rtt time.Duration, packet int) *Path {
	return &Path{
		control: newController(now, roundTrips{rtt, rtt / 2}, packet),
		rates:   rateSampler{deliveredAt: now, firstAt: now}, pacer: pacer{next: now}, sentAt: now,
	}
}

// Changed forgets what was learned of the path, because packets take another one now. What is
// on its way stays accounted for.
func (p *Path) Changed(now time.Duration) {
	p.control = newController(now, p.control.path.trips, p.control.path.packet)
	p.control.round.ends = p.rates.delivered
	p.rates.firstAt, p.rates.deliveredAt, p.rates.limitedTo = now, now, 0
	p.changed = now
}

// Due is when to call Next; ok is false if there is nothing to do before more is offered or
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

// Next is what to send now, and whose it is; ok is false if nothing is due. It counts as sent.
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
			p.sparse.remove(turn) // Its packets have become larger than what its receiver has room for.
		}
		if f == nil {
			p.pacer.waited = false
		}
	}
	return f, r, f != nil
}

// limited takes in that nobody has anything to send, although there is room.
func (p *Path) limited() {
	if p.flight < p.control.window() && p.missing == 0 {
		p.rates.limit(p.flight)
	}
}

// departs takes in that a packet is sent, before it counts as in flight.
func (p *Path) departs(now time.Duration) departure {
	idle := p.flight == 0
	if idle {
		if now-p.sentAt > forgetAfter {
			p.control = p.control.again(now)
			p.control.round.ends = p.rates.delivered
		}
		p.control.resumes(now)
	}
	p.sentAt = now
	return p.rates.departs(now, idle)
}

// Close forgets a flow.
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

// Resent is how many packets were sent again, in all.
func (p *Path) Resent() uint64 { return p.resent }

// RTT is the smoothed round trip, or the handshake's while there is none.
func (p *Path) RTT() time.Duration { return p.control.path.trips.smoothed }

// Window is how much may be in flight now, in bytes.
func (p *Path) Window() int { return p.control.window() }

// Limit is what keeps a path from sending more.
type Limit uint8

// What limits a path.
const (
	LimitNone       Limit = iota // nothing was sent lately
	LimitData                    // there is nothing more to send, or no room at the receiver
	LimitBandwidth               // what the path delivers
	LimitCongestion              // loss or a queue that others share
	LimitPolicer                 // a rate limiter that drops what is beyond its rate
)

// String is a limit's word.
func (l Limit) String() string {
	return [...]string{"none", "data", "bandwidth", "congestion", "policer"}[l]
}

// State is what a path is like, as far as is known.
type State struct {
	Rate        float64       // bytes of payload per second that it delivers at best; 0 is unknown
	RTT         time.Duration // now, smoothed
	BaseRTT     time.Duration // without a queue; 0 is unknown
	Loss        float64       // share of packets that are lost whatever the rate
	Sample      int64         // packets that this is of
	Congested   float64       // share of packets that queues drop, lately
	Policed     float64       // bytes per second that a rate limiter lets through; 0 is none
	InFlight    int           // bytes
	Window      int           // bytes that may be
	Limit       Limit
	Lost, Whole int64         // packets in all: lost, and lost or delivered
	Idle        time.Duration // since something was sent last
}

// State is what is known of the path now.
func (p *Path) State(now time.Duration) State {
	c := &p.control
	s := State{
		Rate: c.path.bandwidth(), RTT: c.path.trips.smoothed, BaseRTT: c.path.base,
		Loss: min(c.judge.free.share(), c.judge.all.share()), Sample: int64(c.judge.free.all),
		InFlight: p.flight, Window: c.window(), Lost: int64(c.judge.lost), Whole: int64(c.judge.whole),
		Idle: now - p.sentAt,
	}
	s.Congested = c.judge.all.share() - s.Loss
	if c.path.policed() { // What is lost may be the limiter's.
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
