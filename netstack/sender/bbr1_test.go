package sender

import "time"

// bbr1Flow is BBR version 1, as in Linux's tcp_bbr.c: the maximum rate of ten round trips, the
// shortest round trip of 10 s, cycles of eight, no response to losses. Its peer acknowledges each
// packet.
type bbr1Flow struct {
	s      *sim
	id     int
	flying onWire
	next   time.Duration // when pacing allows it
	bytes  int64

	rates [10]float64 // bytes per second, by round
	round int
	ends  int64
	min   time.Duration
	minAt time.Duration

	phase bbr1Phase
	cycle int
	since time.Duration
	full  fullPipe
}

// onWire is what a bbr1Flow has sent.
type onWire struct {
	at      map[int]time.Duration
	order   []int
	next    int
	newest  int // that arrived
	acked   int64
	pending bool // a wake-up is
}

type bbr1Phase int

const (
	bbr1Startup bbr1Phase = iota
	bbr1Drain
	bbr1Cycle
	bbr1ProbeRTT
)

const bbr1High = 2.89

func (b *bbr1Flow) start() {
	b.min, b.minAt = b.s.path.rtt+max(b.s.free-b.s.now, 0), b.s.now
	b.flying.at, b.flying.newest = make(map[int]time.Duration), -1
	b.pump()
}

func (b *bbr1Flow) delivered() int64 { return b.bytes }

func (b *bbr1Flow) rate() (rate float64) {
	for _, r := range b.rates {
		rate = max(rate, r)
	}
	return max(rate, 4*simMSS/b.min.Seconds())
}

func (b *bbr1Flow) pacing() float64 {
	switch b.phase {
	case bbr1Startup:
		return bbr1High * b.rate()
	case bbr1Drain:
		return b.rate() / bbr1High
	case bbr1Cycle:
		return b.rate() * [8]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}[b.cycle]
	}
	return b.rate()
}

// holds returns gain times the BDP, in packets.
func (b *bbr1Flow) holds(gain float64) int { return int(gain * b.rate() * b.min.Seconds() / simMSS) }

func (b *bbr1Flow) window() int {
	switch b.phase {
	case bbr1ProbeRTT:
		return 4
	case bbr1Cycle:
		return max(b.holds(2), 4) + 3
	}
	return max(b.holds(bbr1High), 4) + 3
}

func (b *bbr1Flow) pump() {
	w := &b.flying
	for len(w.at) < b.window() && b.next <= b.s.now {
		n, sent, acked := w.next, b.s.now, w.acked
		w.next++
		w.at[n] = sent
		w.order = append(w.order, n)
		b.next = max(b.next, sent-ms) + time.Duration(simMSS/b.pacing()*1e9)
		b.s.send(b.id, simMSS, func() {
			b.bytes += simMSS
			b.s.answer(func() { b.onAck(n, sent, acked) })
		})
	}
	if w.pending {
		return
	}
	w.pending = true
	b.s.at(max(b.next, b.s.now+200*time.Microsecond), func() {
		w.pending = false
		for len(w.order) > 0 {
			sent, out := w.at[w.order[0]]
			if out && w.order[0] >= w.newest-3 && b.s.now-sent < max(200*ms, 5*b.min) {
				break
			}
			delete(w.at, w.order[0])
			w.order = w.order[1:]
		}
		b.pump()
	})
}

func (b *bbr1Flow) onAck(n int, sent time.Duration, acked int64) {
	now, w := b.s.now, &b.flying
	delete(w.at, n)
	w.newest = max(w.newest, n)
	w.acked += simMSS
	rtt := now - sent
	if acked >= b.ends {
		b.ends = w.acked
		b.round++
		b.rates[b.round%len(b.rates)] = 0
		b.full.look(b.rate(), false)
	}
	slot := &b.rates[b.round%len(b.rates)]
	*slot = max(*slot, float64(w.acked-acked)/rtt.Seconds())
	expired := now > b.minAt+10*time.Second
	if rtt <= b.min || expired {
		b.min, b.minAt = rtt, now
	}
	b.turn(expired)
	b.pump()
}

func (b *bbr1Flow) turn(expired bool) {
	now := b.s.now
	enter := func(p bbr1Phase, cycle int) { b.phase, b.cycle, b.since = p, cycle, now }
	switch {
	case expired && b.phase != bbr1ProbeRTT:
		enter(bbr1ProbeRTT, 0)
	case b.phase == bbr1ProbeRTT && now-b.since > 200*ms+b.min:
		b.minAt = now
		enter(bbr1Cycle, 2)
	case b.phase == bbr1Startup && b.full.reached:
		enter(bbr1Drain, 0)
	case b.phase == bbr1Drain && len(b.flying.at) <= b.holds(1):
		enter(bbr1Cycle, 2+b.s.rng.IntN(6))
	case b.phase == bbr1Cycle && (now-b.since > b.min || b.cycle == 1 && len(b.flying.at) <= b.holds(1)):
		enter(bbr1Cycle, (b.cycle+1)%8)
	}
}
