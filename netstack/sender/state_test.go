package sender

import (
	"cmp"
	"math"
	"testing"
	"time"
)

// A path reports the properties of the simulated path.
func TestState(t *testing.T) {
	const few = 200 << 10
	for _, c := range []struct {
		name   string
		path   simPath
		most   int  // bytes of the transfer; 0 is no end
		beside bool // a CUBIC flow
		limit  Limit
		loss   float64
		rate   float64 // bits per second
	}{
		{name: "a plain bottleneck", path: simPath{rate: 20e6}, limit: LimitBandwidth, rate: 20e6},
		{name: "3 % lost", path: simPath{rate: 20e6, loss: 0.03}, limit: LimitBandwidth, loss: 0.03, rate: 20e6},
		{name: "6 % lost", path: simPath{rate: 20e6, loss: 0.06}, loss: 0.06, limit: LimitBandwidth},
		{name: "a rate limiter", path: simPath{rate: 200e6, police: 20e6}, limit: LimitPolicer, rate: 20e6},
		{name: "a short queue", path: simPath{rate: 20e6, rtt: 200 * ms, queue: 25 * ms}, limit: LimitBandwidth, rate: 20e6},
		{name: "a queue of some packets", path: simPath{rate: 20e6, queue: 4 * ms}, limit: LimitBandwidth, rate: 20e6},
		{name: "CUBIC beside it", path: simPath{rate: 20e6}, beside: true, limit: LimitCongestion},
		{name: "few data", path: simPath{rate: 20e6}, most: few, limit: LimitNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.path.rtt, c.path.queue, c.path.timers = cmp.Or(c.path.rtt, 40*ms), cmp.Or(c.path.queue, 100*ms), ms
			s := newSim(c.path, 1)
			own := &ownFlow{s: s, most: c.most}
			own.start()
			if c.beside {
				(&cubicFlow{s: s, id: 1}).start()
			}
			limits := map[Limit]int{}
			for range 200 {
				s.run(s.now + 100*ms)
				limits[own.on.path.State(s.now).Limit]++
			}
			st := own.on.path.State(s.now)
			t.Logf("%+v %v", st, limits)
			if most := mostOften(limits); most != c.limit {
				t.Errorf("limited by %v most of the time, want %v", most, c.limit)
			}
			if math.Abs(st.Loss-c.loss) > 0.002+c.loss/4 {
				t.Errorf("a loss of %.2f %%, want %.2f", st.Loss*100, c.loss*100)
			}
			if want := int64(2000); c.loss > 0 && st.Sample < want || c.most > 0 && st.Sample > 100 {
				t.Errorf("the loss is of %d packets", st.Sample)
			}
			if rate := st.Rate * 8 * (simMSS + headers) / simMSS; c.rate > 0 && math.Abs(rate/c.rate-1) > 0.15 {
				t.Errorf("%.1f Mbit/s, want %.1f", rate/1e6, c.rate/1e6)
			}
			if c.limit == LimitPolicer != (st.Policed > 0) {
				t.Errorf("policed at %.1f Mbit/s", st.Policed*8/1e6)
			}
			if rtt := c.path.rtt; st.BaseRTT < rtt-ms || st.BaseRTT > rtt*23/20 && !c.beside {
				t.Errorf("a round trip of %v without a queue, want %v", st.BaseRTT, rtt)
			}
			if idle := st.Idle > 10*time.Second; idle != (c.most > 0) {
				t.Errorf("idle for %v", st.Idle)
			}
		})
	}
}

func mostOften(n map[Limit]int) (most Limit) {
	for l := range n {
		if n[l] > n[most] {
			most = l
		}
	}
	return most
}
