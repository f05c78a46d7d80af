package sender

import (
	"testing"
	"time"
)

// BenchmarkFlow sends packets over 1 Gbit/s and 100 ms and loses each hundredth: what a packet and
// its acknowledgement cost.
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
