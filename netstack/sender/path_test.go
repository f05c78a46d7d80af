package sender

import (
	"slices"
	"testing"
	"time"
)

// A connection that begins while others send gets its share within some round trips, and all shares
// are equal.
func TestFlowsOfAPathShareIt(t *testing.T) {
	for _, loss := range []float64{0, 0.01} {
		s := newSim(simPath{rate: 50e6, rtt: 50 * ms, queue: 50 * ms, loss: loss}, 1)
		first := &ownFlow{s: s}
		s.at(0, first.start)
		s.run(5 * time.Second)
		flows := []*ownFlow{first}
		for range 3 {
			o := &ownFlow{s: s, on: first.on}
			flows = append(flows, o)
			s.at(s.now, o.start)
		}
		s.run(s.now + 4*time.Second) // The slow starts above.
		var before []int64
		for _, o := range flows {
			before = append(before, o.delivered())
		}
		s.run(s.now + 10*time.Second)
		var sum, squares float64
		for i, o := range flows {
			mbit := float64(o.delivered()-before[i]) * 8 / 10e6
			sum += mbit
			squares += mbit * mbit
		}
		if jain := sum * sum / (4 * squares); sum < 38 || jain < 0.98 {
			t.Errorf("loss %g: %.1f Mbit/s together, want 38 of 45; Jain's index is %.3f, want 0.98", loss, sum, jain)
		}
	}
}

// Sparse traffic beside bulk waits only for the bottleneck's queue, neither for its turn nor for a
// full window.
func TestSparseFlowBesideBulk(t *testing.T) {
	p := simPath{rate: 20e6, rtt: 40 * ms, queue: 100 * ms}
	s := newSim(p, 1)
	bulk := &ownFlow{s: s}
	s.at(0, bulk.start)
	for range 4 {
		s.at(s.now, (&ownFlow{s: s, on: bulk.on}).start)
		s.run(s.now + time.Second)
	}
	keys := &ownFlow{s: s, on: bulk.on, most: 1}
	s.at(s.now, keys.start)
	s.run(s.now + time.Second)
	var waits []time.Duration
	for range 200 {
		s.run(s.now + 50*ms)
		keys.most += 100
		keys.offer()
		offered, before := s.now, keys.f.Sent()
		keys.on.pump()
		for keys.f.Sent() == before {
			s.run(s.now + 200*time.Microsecond)
		}
		waits = append(waits, s.now-offered)
	}
	slices.Sort(waits)
	if p99 := waits[len(waits)*99/100]; p99 > 10*ms {
		t.Errorf("what a key sends waits up to %v for its turn (p99), want 10 ms", p99)
	}
}

// A receiver delays its acknowledgement of a segment that nothing follows. That is no jitter, or
// losses beside a full queue would not count as congestion.
func TestDelayedAcknowledgementsAreNoJitter(t *testing.T) {
	for seed := range uint64(3) {
		s := newSim(simPath{rate: 100e6, rtt: 20 * ms, queue: 21 * ms, jitter: 2 * ms, acks: 2}, 1+seed)
		bulk := &ownFlow{s: s}
		s.at(0, bulk.start)
		s.run(time.Second)
		for end := 20 * time.Second; s.now < end; s.run(s.now + 6*ms) {
			s.at(s.now, (&ownFlow{s: s, id: 1, on: bulk.on, most: 2*simMSS + 240}).start)
		}
		if wide := bulk.on.path.control.path.noise.wide; wide > 20*ms {
			t.Errorf("round trips differ by %v within one", wide)
		}
		var dropped, offered int
		for id := range s.offered {
			dropped, offered = dropped+s.dropped[id], offered+s.offered[id]
		}
		if share := float64(dropped) / float64(offered); share > 0.01 {
			t.Errorf("%.2f %% dropped, want 1 %% at most", share*100)
		}
	}
}

// If there are never more than a few bytes to send, they don't wait: how much was sent says nothing
// about the path's bandwidth.
func TestShortMessagesAloneDoNotWait(t *testing.T) {
	s := newSim(simPath{rate: 50e6, rtt: 20 * ms, queue: 50 * ms}, 1)
	first := &ownFlow{s: s, most: 6}
	s.at(0, first.start)
	s.run(100 * ms)
	var waits []time.Duration
	for range 500 { // longer than the interval of bandwidth probes and the life of the shortest round trip
		began := s.now
		var flows []*ownFlow
		for range 4 {
			o := &ownFlow{s: s, on: first.on, most: 6}
			flows = append(flows, o)
			s.at(began, o.start)
		}
		for _, o := range flows {
			for o.f == nil || o.delivered() < int64(o.most) {
				s.run(s.now + ms/2)
			}
			waits = append(waits, s.now-began)
		}
		s.run(s.now + 40*ms)
		for _, o := range flows {
			o.on.path.Close(o.f)
			delete(o.on.flows, o.f)
		}
	}
	slices.Sort(waits)
	if p99 := waits[len(waits)*99/100]; p99 > 15*ms {
		t.Errorf("six bytes take up to %v one way (p99), and the path takes 10 ms", p99)
	}
}

// A short transfer over a known path goes at the path's rate, without a startup of its own.
func TestShortTransferOnAKnownPath(t *testing.T) {
	took := func(known bool) time.Duration {
		s := newSim(simPath{rate: 50e6, rtt: 100 * ms, queue: 100 * ms}, 1)
		first := &ownFlow{s: s, most: 20 << 20}
		s.at(0, first.start)
		s.run(10 * time.Second)
		if first.delivered() < int64(first.most) {
			t.Fatal("the first transfer isn't over")
		}
		o := &ownFlow{s: s, most: 2 << 20}
		if known {
			o.on = first.on
		}
		began := s.now
		s.at(began, o.start)
		o.s.at(began, func() { o.credit = 1 << 20; o.offer(); o.on.pump() }) // The sender above has no slow start either.
		for o.delivered() < int64(o.most) {
			s.run(s.now + ms)
		}
		return s.now - began
	}
	alone, after := took(false), took(true)
	if after > alone*3/4 {
		t.Errorf("2 MB take %v on a path that is known, and %v on another one", after, alone)
	}
	t.Logf("2 MB take %v on a path that is known, and %v on another one", after, alone)
}

// After a minute without traffic the rate is measured again, the ambient loss is not.
func TestIdlePathForgetsItsRate(t *testing.T) {
	s := newSim(simPath{rate: 50e6, rtt: 50 * ms, queue: 50 * ms, loss: 0.02}, 1)
	o := &ownFlow{s: s, most: 50 << 20}
	s.at(0, o.start)
	s.run(30 * time.Second)
	known := o.on.path.State(s.now)
	if known.Rate < 4e6 || known.Loss < 0.01 || known.Loss > 0.03 || known.Limit != LimitNone {
		t.Fatalf("the path is taken for %+v", known)
	}
	s.run(s.now + forgetAfter)
	o.most += 100
	o.offer()
	o.on.pump()
	if now := o.on.path.State(s.now); now.Rate != 0 || now.Loss != known.Loss || now.BaseRTT != known.BaseRTT {
		t.Errorf("after a minute the path is taken for %+v, was for %+v", now, known)
	}
}

// A closed flow leaves nothing behind, and nothing in flight.
func TestClosedFlow(t *testing.T) {
	s := newSim(simPath{rate: 20e6, rtt: 40 * ms, queue: 40 * ms, loss: 0.01}, 1)
	a := &ownFlow{s: s}
	s.at(0, a.start)
	s.run(ms)
	b := &ownFlow{s: s, on: a.on}
	s.at(s.now, b.start)
	s.run(3 * time.Second)
	p := a.on.path
	p.Close(a.f)
	if p.flight != b.f.board.flight || slices.Contains(p.busy.flows, a.f) {
		t.Errorf("%d bytes in flight, want %d", p.flight, b.f.board.flight)
	}
	delete(a.on.flows, a.f) // pump fails if it gets a turn
	before := b.delivered()
	s.run(6 * time.Second)
	if mbit := float64(b.delivered()-before) * 8 / 3e6; mbit < 14 {
		t.Errorf("%.1f Mbit/s of 18 for who is left", mbit)
	}
}

// A flow whose packets are now larger than its receiver's window waits, and doesn't make its path
// poll.
func TestSparseFlowWithLargerPackets(t *testing.T) {
	p := NewPath(0, 40*ms, 1000)
	bulk, few := p.Open(Config{MSS: 1000, Window: 1 << 30}), p.Open(Config{MSS: 500, Window: 1500})
	few.Offer(0, 500)
	bulk.Offer(0, 1<<20)
	now := time.Duration(0)
	for p.fits() {
		at, _ := p.Due()
		now = max(now, at)
		p.Next(now)
	}
	few.Offer(now, 2000)
	few.SetMSS(1200)
	for range 10 {
		at, _ := p.Due()
		now = max(now, at)
		if f, r, ok := p.Next(now); ok {
			t.Fatalf("bulk: %v, %v is sent beyond the window", f == bulk, r)
		}
		if at, _ := p.Due(); at > now {
			return // It waits for a timer.
		}
	}
	t.Error("there is always something due, and nothing to send")
}

// Bulk that begins after short messages goes as fast as on a path of its own: what there was to send
// says nothing of what the path delivers.
func TestBulkAfterShortMessages(t *testing.T) {
	took := func(p simPath, messages time.Duration, size int) time.Duration {
		s := newSim(p, 1)
		few := &ownFlow{s: s, most: size}
		s.at(0, few.start)
		s.run(ms)
		for s.now < messages {
			s.run(s.now + 70*ms)
			few.most += size
			few.offer()
			few.on.pump()
		}
		bulk, began := &ownFlow{s: s, on: few.on, most: 20 << 20}, s.now
		s.at(began, bulk.start)
		for bulk.f == nil || bulk.delivered() < int64(bulk.most) {
			s.run(s.now + ms)
		}
		return s.now - began
	}
	for _, loss := range []float64{0, 0.01} {
		p := simPath{rate: 200e6, rtt: 100 * ms, queue: 100 * ms, loss: loss}
		alone := took(p, 0, 300)
		for _, size := range []int{300, 5000} {
			if after := took(p, 20*time.Second, size); after > alone*5/4 {
				t.Errorf("loss %g: 20 MB take %v after messages of %d bytes, and %v on a path of their own", loss, after, size, alone)
			}
		}
	}
}

// Bulk that begins while the window is small to measure the shortest round trip starts up afterwards.
func TestBulkInProbeRTTStartsUpAfterwards(t *testing.T) {
	p := simPath{rate: 200e6, rtt: 20 * ms, queue: 40 * ms, jitter: 8 * ms}
	took := func(messages bool) time.Duration {
		s := newSim(p, 1)
		few := &ownFlow{s: s, most: 5000}
		s.at(0, few.start)
		s.run(ms)
		for probed := time.Duration(0); messages && probed < 50*ms; {
			s.run(s.now + 7*ms)
			few.most += 5000
			few.offer()
			few.on.pump()
			if few.on.path.control.turn.phase == probeRTT && s.now > 10*time.Second {
				probed += 7 * ms
			}
			if s.now > time.Minute {
				t.Fatal("the shortest round trip is never measured")
			}
		}
		bulk, began := &ownFlow{s: s, on: few.on, most: 20 << 20}, s.now
		s.at(began, bulk.start)
		for bulk.f == nil || bulk.delivered() < int64(bulk.most) {
			s.run(s.now + ms)
		}
		return s.now - began
	}
	if alone, after := took(false), took(true); after > alone*3/2 {
		t.Errorf("20 MB take %v, and %v on a path of their own", after, alone)
	}
}

// A receiver that has little room at first doesn't end the exponential growth: how fast that is
// filled says nothing of what the path delivers.
func TestBulkAfterASmallWindow(t *testing.T) {
	s := newSim(simPath{rate: 200e6, rtt: 100 * ms, queue: 100 * ms, loss: 0.01}, 1)
	o := &ownFlow{s: s}
	s.at(0, o.start)
	s.run(ms)
	o.peer.buffer = 32 << 10
	s.run(3 * time.Second)
	o.peer.buffer = 64 << 20
	before := o.delivered()
	s.run(6 * time.Second)
	if mbit := float64(o.delivered()-before) * 8 / 3e6; mbit < 90 {
		t.Errorf("%.1f Mbit/s in the 3 s after there is room, want 90 of 178", mbit)
	}
}
