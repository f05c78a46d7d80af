package sender

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// hostile is a transfer to a receiver that does everything TCP allows, and some things it
// discourages: it discards what it had selectively acknowledged, shrinks its window, closes it, and
// accepts parts of segments. The path loses, duplicates and reorders packets, and changes its MTU
// and length. The sender above ends with a FIN, which is the last byte.
type hostile struct {
	*sim
	t       *testing.T
	f       *Flow
	peer    receiver
	start   Seq
	size    int // bytes in total
	offered int
	armed   time.Duration
	mss     int
	loss    float64

	discards, closes int
}

func (h *hostile) pump() {
	for {
		r, ok := next(h.f, h.now)
		if !ok {
			break
		}
		h.check(r)
		copies := 1
		if h.rng.Float64() < 0.01 {
			copies = 2
		}
		for range copies {
			if h.rng.Float64() >= h.loss {
				h.at(h.now+h.path.rtt/2+h.later(), func() { h.arrives(r) })
			}
		}
	}
	at, ok := h.f.path.Due()
	if !ok {
		if h.f.Unacknowledged() != h.f.end {
			h.t.Fatalf("%v: nothing is due, and %d bytes aren't acknowledged", h.now, h.f.Unacknowledged().To(h.f.end))
		}
		return
	}
	at = max(at, h.now+time.Microsecond)
	if h.armed > h.now && h.armed <= at {
		return
	}
	h.armed = at
	h.at(at, func() {
		if h.armed == at {
			h.pump()
		}
	})
}

// later returns the extra delay of a packet; a few have a large one.
func (h *hostile) later() time.Duration {
	d := time.Duration(h.rng.Int64N(int64(100 * time.Microsecond)))
	if h.rng.Float64() < 0.02 {
		d += time.Duration(h.rng.Int64N(int64(h.path.rtt)))
	}
	return d
}

// check verifies what the sender does.
func (h *hostile) check(r Range) {
	h.t.Helper()
	bytes := make(map[state]int)
	for _, g := range h.f.board.segments.all() {
		bytes[g.state] += g.Size()
	}
	switch {
	case r.Size() < 1 || r.Size() > h.mss:
		h.t.Fatalf("%v: a packet of %d bytes, the MSS is %d", h.now, r.Size(), h.mss)
	case r.Start.Before(h.f.Unacknowledged()) || h.f.end.Before(r.End):
		h.t.Fatalf("%v: sent %v, of which only %v to %v is held", h.now, r, h.f.Unacknowledged(), h.f.end)
	case bytes[flying] != h.f.board.flight || bytes[missing] != h.f.board.missing:
		h.t.Fatalf("%v: in flight %d, missing %d; want %v", h.now, h.f.board.flight, h.f.board.missing, bytes)
	}
}

func (h *hostile) arrives(r Range) {
	if len(h.peer.held) > 0 && h.rng.Float64() < 0.01 { // It is out of memory.
		h.discards++
		h.peer.held = h.peer.held[:h.rng.IntN(len(h.peer.held))]
	}
	if h.rng.Float64() < 0.002 {
		h.peer.buffer = 2000 + h.rng.IntN(200_000) // Perhaps smaller than what was announced.
	}
	before := h.peer.read
	h.peer.take(r)
	h.peer.unread += int(h.peer.read - before)
	if h.peer.unread < h.peer.buffer && h.rng.Float64() < 0.9 {
		h.peer.unread = 0
	} else if h.peer.window() == 0 {
		h.closes++
		h.at(h.now+time.Duration(h.rng.Int64N(int64(3*time.Second))), func() {
			h.peer.unread = 0
			h.answer() // The update may be lost.
		})
	}
	h.answer()
}

func (h *hostile) answer() {
	a := h.peer.ack(1 + h.rng.IntN(4))
	if h.rng.Float64() < h.loss {
		return
	}
	h.at(h.now+h.path.rtt/2+h.later(), func() {
		h.f.OnAck(h.now, a)
		h.feed()
		h.pump()
	})
}

// feed offers more data, up to the announced window.
func (h *hostile) feed() {
	room := h.f.board.una.To(h.f.edge)
	for h.offered < h.size && h.start.To(h.f.board.una)+room > h.offered {
		h.offered = min(h.offered+1+h.rng.IntN(60_000), h.size)
	}
	h.f.Offer(h.now, h.start+Seq(h.offered))
}

func (h *hostile) disturb() {
	switch h.rng.IntN(4) {
	case 0:
		h.mss = 536 + h.rng.IntN(900)
		h.f.SetMSS(h.mss)
	case 1: // From a relay to a direct path, or back.
		h.path.rtt = time.Duration(1+h.rng.IntN(300)) * ms
		h.f.path.Changed(h.now)
	case 2:
		h.path.rtt = time.Duration(1+h.rng.IntN(300)) * ms // Unannounced.
	case 3: // An outage.
		was := h.loss
		h.loss = 1
		h.at(h.now+time.Duration(h.rng.Int64N(int64(5*time.Second))), func() { h.loss = was })
		return
	}
	if h.now < 20*time.Second {
		h.at(h.now+time.Duration(h.rng.Int64N(int64(2*time.Second))), h.disturb)
	}
}

// Every byte arrives, whatever the receiver and the path do, soon enough that nothing can have
// hung.
func TestHostileReceivers(t *testing.T) {
	discards, closes, wraps := 0, 0, 0
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &hostile{sim: newSim(simPath{rtt: 20 * ms}, seed), t: t, size: 300_000, mss: 1380}
			h.rng = rand.New(rand.NewPCG(seed, 3))
			h.loss = []float64{0, 0.01, 0.1, 0.3}[seed%4]
			h.start = Seq(1<<32 - uint64(h.rng.IntN(2*h.size)))
			h.peer = receiver{next: h.start, buffer: 65535, dsack: seed%2 == 0}
			h.f = alone(0, 20*ms, Config{Start: h.start, MSS: h.mss, Window: 65535})
			h.feed()
			h.pump()
			h.at(time.Second/2, h.disturb)
			for h.f.Unacknowledged() != h.start+Seq(h.size) {
				if h.run(h.now + time.Second); h.now > 10*time.Minute {
					t.Fatalf("after %v %d of %d bytes are acknowledged, %d were offered; receiver %+v", h.now,
						h.start.To(h.f.Unacknowledged()), h.size, h.offered, h.peer)
				}
			}
			if h.peer.read != int64(h.size) {
				t.Errorf("received %d bytes, want %d", h.peer.read, h.size)
			}
			if at, due := h.f.path.Due(); due {
				t.Errorf("something is due at %v, and everything is acknowledged", at)
			}
			if f := h.f; !f.board.segments.empty() || len(f.board.known) > 0 || f.board.flight != 0 || f.board.missing != 0 {
				t.Errorf("left on the scoreboard: %+v", f.board)
			}
			discards += h.discards
			closes += h.closes
			if h.start+Seq(h.size) < h.start {
				wraps++
			}
		})
	}
	if discards == 0 || closes == 0 || wraps == 0 {
		t.Errorf("%d times discarded, %d closed, %d wrapped: the test tests too little", discards, closes, wraps)
	}
	t.Logf("%d times discarded, %d closed, %d wrapped", discards, closes, wraps)
}

// A receiver that lets every packet time out, and then acknowledges the retransmission sooner than a
// round trip takes, makes each arrive late. What is kept of departed packets is bounded nevertheless.
func TestDepartedPacketsAreForgottenAtLast(t *testing.T) {
	const (
		window = 50_000
		honest = 2 * time.Second // so that the round trip is known
		rtt    = 300 * ms
	)
	type ack struct {
		at time.Duration
		f  *Flow
		to Seq
	}
	p := NewPath(0, rtt, mss)
	var flows []*Flow
	for range 3 { // With one, nothing would be in flight after a timeout.
		flows = append(flows, p.Open(Config{MSS: mss, Window: window}))
	}
	var acks []ack
	sent := map[*Flow]Seq{} // the end of what was
	kept, now := 0, time.Duration(0)
	for n := 0; n < 3*gapMost; {
		for _, f := range flows {
			f.Offer(now, f.Unacknowledged()+2*window)
		}
		if f, r, ok := p.Next(now); ok {
			n++
			switch again := r.Start.Before(sent[f]); {
			case now < honest:
				acks = append(acks, ack{now + rtt, f, r.End})
			case again && r.Start == f.Unacknowledged():
				acks = append(acks, ack{now + ms, f, r.End})
			}
			if sent[f].Before(r.End) {
				sent[f] = r.End
			}
			kept = max(kept, len(p.gap.sent.all()))
			continue
		}
		next := now + 50*ms
		if at, ok := p.Due(); ok {
			next = min(next, at)
		}
		for _, a := range acks {
			next = min(next, a.at)
		}
		now = max(next, now+ms/10)
		waiting := acks
		acks = nil
		for _, a := range waiting {
			switch {
			case a.at > now:
				acks = append(acks, a)
			case a.f.Unacknowledged().Before(a.to):
				a.f.OnAck(now, Ack{Ack: a.to, Window: window})
			}
		}
	}
	if kept > gapMost || kept < gapMost/2 {
		t.Errorf("up to %d departures are kept, want about %d at most", kept, gapMost)
	}
}
