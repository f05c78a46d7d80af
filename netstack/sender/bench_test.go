package sender

import (
	"strconv"
	"testing"
	"time"
)

// BenchmarkFlow measures the cost of a packet and its acknowledgement, at 1 Gbit/s, 100 ms and 1 %
// loss.
func BenchmarkFlow(b *testing.B) {
	for _, lossy := range []bool{false, true} {
		name := "clean"
		if lossy {
			name = "1%"
		}
		b.Run(name, func(b *testing.B) {
			type flight struct {
				r  Range
				at time.Duration
			}
			const gap = 11 * time.Microsecond // between packets
			f := alone(0, 100*ms, Config{MSS: simMSS, Window: 1 << 30})
			peer := receiver{buffer: 1 << 30}
			var wire []flight
			now, sent := time.Duration(0), 0
			for b.Loop() {
				for done := false; !done; now += gap {
					f.Offer(now, f.Unacknowledged()+1<<26)
					if r, ok := next(f, now); ok {
						if sent++; !lossy || sent%100 != 0 {
							wire = append(wire, flight{r, now + 100*ms})
						}
						done = true
					}
					for len(wire) > 0 && wire[0].at <= now {
						peer.take(wire[0].r)
						wire = wire[1:]
						f.OnAck(now, peer.ack(3))
					}
				}
			}
			b.ReportMetric(float64(f.board.flight)/simMSS, "packets-in-flight")
		})
	}
}

// BenchmarkManyFlows sends a packet over a path shared by many flows that always have something to
// send.
func BenchmarkManyFlows(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			const gap = 11 * time.Microsecond // between packets
			type flight struct {
				f  *Flow
				r  Range
				at time.Duration
			}
			p := NewPath(0, 100*ms, simMSS)
			peers := make(map[*Flow]*receiver, n)
			for range n {
				f := p.Open(Config{MSS: simMSS, Window: 1 << 30})
				peers[f] = &receiver{buffer: 1 << 30}
				f.Offer(0, 1<<20)
			}
			var wire []flight
			now := time.Duration(0)
			for b.Loop() {
				for done := false; !done; now += gap {
					p.Due()
					if f, r, ok := p.Next(now); ok {
						wire = append(wire, flight{f, r, now + 100*ms})
						done = true
					}
					for len(wire) > 0 && wire[0].at <= now {
						f, peer := wire[0].f, peers[wire[0].f]
						peer.take(wire[0].r)
						wire = wire[1:]
						f.OnAck(now, peer.ack(3))
						f.Offer(now, f.Unacknowledged()+1<<20)
					}
				}
			}
		})
	}
}
