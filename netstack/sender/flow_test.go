package sender

import (
	"testing"
	"time"
	"unsafe"
)

// wire is a flow whose packets the test controls.
type wire struct {
	t   *testing.T
	f   *Flow
	now time.Duration
}

const start, mss = Seq(1<<32 - 3000), 1000 // The third packet wraps.

// newWire returns a flow with that many packets to send and a round trip of 100 ms.
func newWire(t *testing.T, packets int) *wire {
	w := &wire{t: t, f: alone(0, 100*ms, Config{Start: start, MSS: mss, Window: 1 << 20})}
	w.f.Offer(0, at(packets))
	return w
}

// at returns the number of the first byte of a packet.
func at(packet int) Seq { return start + Seq(packet*mss) }

// until lets time pass and returns the numbers of the packets that are sent.
func (w *wire) until(now time.Duration) (sent []int) {
	for {
		if r, ok := next(w.f, w.now); ok {
			sent = append(sent, start.To(r.Start)/mss)
			continue
		}
		next, ok := w.f.path.Due()
		if !ok || next > now {
			break
		}
		if next <= w.now {
			w.t.Fatalf("due at %v, but nothing was done at %v", next, w.now)
		}
		w.now = next
	}
	w.now = now
	return sent
}

func (w *wire) ack(packet int, blocks ...Range) {
	w.f.OnAck(w.now, Ack{Ack: at(packet), Window: 1 << 20, Blocks: blocks})
}

func packets(from, to int) Range { return Range{at(from), at(to)} }

func (w *wire) want(what string, got []int, want ...int) {
	w.t.Helper()
	if len(got) != len(want) {
		w.t.Fatalf("%s at %v: sent %v, want %v", what, w.now, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			w.t.Fatalf("%s at %v: sent %v, want %v", what, w.now, got, want)
		}
	}
}

// A loss is detected when a later packet has arrived and a quarter of a round trip has passed.
func TestLossIsFoundByTime(t *testing.T) {
	w := newWire(t, 5)
	w.want("at first", w.until(90*ms), 0, 1, 2, 3, 4)
	w.now = 200 * ms
	w.ack(1, packets(2, 5))
	w.want("right then", w.until(201*ms))
	w.want("after the window", w.until(400*ms), 1)
}

// The last packet is sent again once, after two round trips without an acknowledgement. After that
// the timeout decides, and each unsuccessful one doubles the next.
func TestTailLossProbeThenTimeouts(t *testing.T) {
	w := newWire(t, 3)
	w.want("at first", w.until(90*ms), 0, 1, 2)
	w.now = 200 * ms
	w.ack(1)
	srtt := w.f.path.control.path.trips.smoothed
	w.want("before the probe", w.until(w.now+2*srtt-ms))
	w.want("the probe", w.until(w.now+2*ms), 2)
	rto := w.f.path.control.path.trips.timeout(0)
	w.want("before the timeout", w.until(w.now+rto-5*ms))
	w.want("the timeout", w.until(w.now+10*ms), 1)
	backoffs := 0
	for from := w.now; w.now < 20*time.Second; {
		if sent := w.until(w.now + 10*ms); len(sent) > 0 {
			if gap := w.now - from; gap > maxTimeout+100*ms {
				t.Fatalf("%v between timeouts, want %v at most", gap, maxTimeout)
			}
			from = w.now
			backoffs++
		}
	}
	if backoffs < 8 || backoffs > 20 {
		t.Errorf("%d packets in 20 s without an answer, want one every 2 s after the first few", backoffs)
	}
}

// What was selectively acknowledged is sent again when the receiver turns out to have discarded it.
func TestReceiverDiscards(t *testing.T) {
	w := newWire(t, 5)
	w.until(90 * ms)
	w.now = 200 * ms
	w.ack(0, packets(1, 5))
	w.want("the loss", w.until(300*ms), 0)
	w.now = 400 * ms
	w.ack(1) // But not packets 1 to 4.
	w.want("what it discarded", w.until(900 * ms)[:4], 1, 2, 3, 4)
}

// A packet that was only late isn't counted as lost, and enlarges the reordering window.
func TestLatePacketWidensTheWindow(t *testing.T) {
	w := newWire(t, 5)
	w.until(90 * ms)
	w.now = 200 * ms
	w.ack(0, packets(1, 5))
	before := w.f.loss.window(w.now, 100*ms, 100*ms)
	w.want("the loss", w.until(300*ms), 0)
	w.now += ms
	w.ack(5)
	if after := w.f.loss.window(w.now, 100*ms, 100*ms); after <= before {
		t.Errorf("the window is %v, was %v", after, before)
	}
	if lost := w.f.path.control.judge.round.lost; lost > 0.01 {
		t.Errorf("%.1f packets count as lost, want none", lost)
	}
}

// A receiver that discards what arrived late doesn't make the same loss be taken back twice.
func TestALossIsTakenBackOnce(t *testing.T) {
	w := newWire(t, 5)
	w.until(90 * ms)
	w.now = 200 * ms
	w.ack(1, packets(3, 5))
	w.want("the losses", w.until(300*ms), 1, 2)
	w.now += ms
	w.ack(1, packets(2, 5))
	w.now += ms
	w.ack(2) // But not packets 2 to 4.
	w.until(w.now + 50*ms)
	w.ack(5)
	if lost := w.f.path.control.judge.lost; lost < -0.01 || lost > 0.01 {
		t.Errorf("%.1f packets count as lost, want none", lost)
	}
}

// If an acknowledgement was lost, the next one delivers older packets, too. Its round trip is that
// of the newest.
func TestRoundTripIsThatOfTheNewestPacket(t *testing.T) {
	w := newWire(t, 5)
	w.until(90 * ms)
	w.now = 200 * ms
	want := w.now - w.f.board.find(at(4)).departed.at
	if older := w.now - w.f.board.find(at(1)).departed.at; older == want {
		t.Fatal("both departed at the same time")
	}
	w.ack(0, packets(4, 5), packets(1, 2))
	if got := w.f.path.control.path.minRTT; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// What a timeout marks as lost, and arrives nevertheless, neither adds to the counted losses nor
// reduces them.
func TestAStallCountsNothingAsLost(t *testing.T) {
	w := newWire(t, 5)
	w.until(90 * ms)
	w.now = 200 * ms
	w.ack(1)
	w.f.Offer(w.now, at(12))
	w.until(5 * time.Second)
	w.ack(12)
	if j := w.f.path.control.judge; j.lost != 0 || j.round.lost != 0 {
		t.Errorf("%.1f packets count as lost, %.1f in this round, want none", j.lost, j.round.lost)
	}
}

// A closed window is probed with one byte, at growing intervals. Any acknowledgement can open it.
func TestClosedWindowIsProbed(t *testing.T) {
	w := newWire(t, 2)
	w.until(90 * ms)
	w.now = 200 * ms
	w.f.OnAck(w.now, Ack{Ack: at(2)})
	w.f.Offer(w.now, at(4))
	probes := 0
	for w.now < 10*time.Second {
		r, ok := next(w.f, w.now)
		if ok {
			if probes++; r.Size() != 1 || r.Start != at(2) {
				t.Fatalf("sent %v, want one byte at %v", r, at(2))
			}
			continue
		}
		next, ok := w.f.path.Due()
		if !ok {
			t.Fatal("nothing is due with a closed window and data to send")
		}
		w.now = max(next, w.now+ms)
	}
	if probes < 4 || probes > 12 {
		t.Errorf("%d probes in 10 s", probes)
	}
	w.ack(2)
	if sent := w.until(w.now + 200*ms); len(sent) < 2 {
		t.Errorf("sent %v after the window opened, want all", sent)
	}
}

// After an outage a flow is soon as fast as before. During it, the flow sends almost nothing.
func TestOutage(t *testing.T) {
	s := newSim(simPath{rate: 50e6, rtt: 40 * ms, queue: 40 * ms, loss: 0.005}, 1)
	o := &ownFlow{s: s}
	s.at(0, o.start)
	s.run(10 * time.Second)
	s.path.loss = 1
	s.forget()
	s.run(13 * time.Second)
	if n := s.offered[0]; n > 1000 {
		t.Errorf("sent %d packets in an outage of 3 s", n)
	}
	s.path.loss = 0.005
	s.run(16 * time.Second) // A timeout of at most 2 s, and a startup.
	before := o.delivered()
	s.run(19 * time.Second)
	if mbit := float64(o.delivered()-before) * 8 / 3e6; mbit < 36 {
		t.Errorf("%.1f Mbit/s from 3 s after the outage on, want 36", mbit)
	}
}

// A path that becomes longer or shorter, announced or not, soon has its full rate again.
func TestPathChanges(t *testing.T) {
	for _, told := range []bool{true, false} {
		for _, rtt := range []time.Duration{10 * ms, 150 * ms} {
			s := newSim(simPath{rate: 50e6, rtt: 50 * ms, queue: 50 * ms, loss: 0.005}, 1)
			o := &ownFlow{s: s}
			s.at(0, o.start)
			s.run(10 * time.Second)
			s.path.rtt = rtt
			if told {
				o.f.path.Changed(s.now)
			}
			after := 10*time.Second + baseKept + minRTTKept
			if told {
				after = 15 * time.Second
			}
			s.run(after)
			before := o.delivered()
			s.run(after + 5*time.Second)
			if mbit := float64(o.delivered()-before) * 8 / 5e6; mbit < 36 {
				t.Errorf("from 50 ms to %v, told %v: %.1f Mbit/s, want 36", rtt, told, mbit)
			}
		}
	}
}

// The same for a path that becomes longer and lossy at the same time: the losses look as if they
// were beside a queue.
func TestLongerPathThatLoses(t *testing.T) {
	for _, rtt := range []time.Duration{70 * ms, 100 * ms, 200 * ms} {
		for _, loss := range []float64{0.005, 0.03} {
			mean := 0.0
			for seed := range uint64(longerRuns) {
				s := newSim(simPath{rate: lossyRate, rtt: 50 * ms, queue: 50 * ms, timers: ms}, 1+seed)
				o := &ownFlow{s: s}
				s.at(0, o.start)
				s.run(10 * time.Second)
				s.path.rtt, s.path.loss = rtt, loss
				s.run(20 * time.Second)
				before := o.delivered()
				s.run(25 * time.Second)
				mean += float64(o.delivered()-before) * 8 / 5e6 / longerRuns
			}
			t.Logf("%v, %g %%: %.1f Mbit/s", rtt, loss*100, mean)
			if want := 0.6 * lossyRate / 1e6; mean < want {
				t.Errorf("%.1f Mbit/s 10 s after the path became %v long and lost %g %%, want %g", mean, rtt, loss*100, want)
			}
		}
	}
}

// A longer path differs from a queue in that round trips stay the same while the data in flight
// changes. A receiver that delays its acknowledgements step by step gains no more than by the first
// step.
func TestLongerPathIsToldFromAQueue(t *testing.T) {
	for name, c := range map[string]struct {
		rtt    func(at time.Duration) time.Duration
		flight func(round int) int
		want   int
	}{
		"longer":                {func(time.Duration) time.Duration { return 80 * ms }, func(n int) int { return 20 + 20*(n%2) }, 1},
		"the same in flight":    {func(time.Duration) time.Duration { return 80 * ms }, func(int) int { return 40 }, 0},
		"a queue that grows":    {func(at time.Duration) time.Duration { return 80*ms + at/100 }, func(n int) int { return 20 + 20*(n%2) }, 0},
		"as long as before":     {func(time.Duration) time.Duration { return 50 * ms }, func(n int) int { return 20 + 20*(n%2) }, 0},
		"steps, each for a few": {func(at time.Duration) time.Duration { return 80*ms + at/(5*time.Second)*10*ms }, func(n int) int { return 20 + 20*(n%2) }, 1},
	} {
		m := newPathModel(0, roundTrips{}, 1380)
		m.update(0, sample{rtt: 50 * ms})
		found, round := 0, 0
		for at := ms; at < baseKept; at += c.rtt(at) {
			if round++; m.detectLonger(at, c.rtt(at), c.flight(round)) {
				found++
			}
		}
		if found != c.want {
			t.Errorf("%s: %d times, want %d", name, found, c.want)
		}
	}
}

// On a path with jitter, one round trip of seconds does not hide a queue.
func TestAnInterruptionHidesNoQueue(t *testing.T) {
	m := newPathModel(0, roundTrips{}, 1380)
	now := time.Duration(0)
	for i := range time.Duration(200) {
		now += 5 * ms
		m.update(now, sample{rtt: 20*ms + i%2*6*ms})
	}
	if !m.jitters() {
		t.Fatal("no jitter is seen")
	}
	m.noise.round(20*ms, 5*time.Second, m.minRTT)
	if !m.queued(100*ms, besideLoss) {
		t.Errorf("a queue of 80 ms is jitter: %v on average, %v in a round", m.noise.mean, m.noise.wide)
	}
}

// An idle flow has no timer, and costs little memory.
func TestIdleFlow(t *testing.T) {
	w := newWire(t, 3)
	w.until(90 * ms)
	w.now = 100 * ms
	w.ack(3)
	if at, ok := w.f.path.Due(); ok {
		t.Errorf("due at %v", at)
	}
	if size := unsafe.Sizeof(*w.f); size > 1024 {
		t.Errorf("a flow has %d bytes, want 1024 at most", size)
	}
	if b := &w.f.board; cap(b.segments.items) > 0 || cap(w.f.loss.sent.items) > 0 {
		t.Errorf("an idle flow keeps %d segments and %d transmissions", cap(b.segments.items), cap(w.f.loss.sent.items))
	}
}

// What is in flight is kept in memory that is used again: a flow that always has as much in flight
// allocates nothing, however much it sends.
func TestSteadyFlowAllocatesNothing(t *testing.T) {
	const gap, trip = 100 * time.Microsecond, 1000 // of which a round trip is
	f := alone(0, trip*gap, Config{MSS: mss, Window: 1 << 30})
	var wire [trip]Range // what was sent in the last round trip
	step := 0
	send := func(trips int) {
		for range trips * trip {
			now, r := time.Duration(step)*gap, &wire[step%trip]
			step++
			if r.Size() > 0 {
				f.OnAck(now, Ack{Ack: r.End, Window: 1 << 30})
			}
			f.Offer(now, f.Unacknowledged()+1<<26)
			*r, _ = next(f, now)
		}
	}
	send(100)
	if n := f.board.flight / mss; n < trip/2 {
		t.Fatalf("%d packets in flight, want about %d", n, trip)
	}
	if n := testing.AllocsPerRun(5, func() { send(20) }); n > 0 {
		t.Errorf("%v allocations in 20 round trips", n)
	}
}

// An acknowledgement of data that arrived long before a gap was filled, without a SACK, says
// nothing about the round trip. A timeout computed from it would be minutes.
func TestFilledGapIsNoRoundTrip(t *testing.T) {
	w := newWire(t, 10)
	w.until(90 * ms)
	w.now = 100 * ms
	w.ack(1)
	w.until(time.Second) // A timeout marks the rest as lost, and sends a part of it again.
	w.ack(10)
	if srtt := w.f.path.control.path.trips.smoothed; srtt > 110*ms {
		t.Errorf("the smoothed round trip is %v, was 100 ms", srtt)
	}
}

// Data in flight, which must be kept in memory, is at most three BDPs once the BDP is known.
func TestInFlightIsBounded(t *testing.T) {
	for _, loss := range []float64{0, 0.01} {
		p := simPath{rate: 50e6, rtt: 100 * ms, queue: 400 * ms, loss: loss}
		s := newSim(p, 1)
		o := &ownFlow{s: s}
		s.at(0, o.start)
		s.run(5 * time.Second)
		for s.now < 15*time.Second {
			s.run(s.now + 10*ms)
			if holds := p.rate / 8 * p.rtt.Seconds(); float64(o.f.board.flight) > 3*holds {
				t.Fatalf("loss %g: %d bytes in flight at %v, the path holds %.0f", loss, o.f.board.flight, s.now, holds)
			}
		}
	}
}

// What arrives on the old path says nothing about the rate of the new one.
func TestAChangedPathsRateIsItsOwn(t *testing.T) {
	s := newSim(simPath{rate: 50e6, rtt: 100 * ms, queue: 50 * ms}, 1)
	o := &ownFlow{s: s}
	s.at(0, o.start)
	s.run(10 * time.Second)
	s.path.rate, s.path.rtt = 2e6, 40*ms
	o.f.path.Changed(s.now)
	for s.now < 15*time.Second {
		s.run(s.now + 5*ms)
		if got := o.f.path.State(s.now).Rate * 8; got > 3e6 {
			t.Fatalf("%.1f Mbit/s %v after a change to 2", got/1e6, s.now-10*time.Second)
		}
	}
	if got := o.f.path.State(s.now).Rate * 8; got < 1.8e6 {
		t.Errorf("%.1f Mbit/s 5 s after a change to 2", got/1e6)
	}
}
