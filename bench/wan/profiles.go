package wan

import (
	"time"

	"github.com/postern-dev/postern/bench"
)

// profile is a path of a kind, as one meets it.
type profile struct {
	name     string
	rtt      time.Duration
	jitter   time.Duration // By which a round trip is longer at most.
	down, up float64       // To the edge and from it, in bits per second.
	loss     float64
	burst    float64 // Packets lost in a row, in the mean; 0 for one by one.
	queue    time.Duration
}

// profiles are the kinds of paths that edges have. What their sources don't say was chosen.
var profiles = []profile{
	// A good cell: 25 to 55 ms without load, and a queue that is bounded by memory. Jiang,
	// Wang, Lee, Rhee, "Tackling Bufferbloat in 3G/4G Networks", IMC 2012, has such queues;
	// the bursts of losses are of handovers.
	{"lte", 25 * time.Millisecond, 30 * time.Millisecond, 30e6, 10e6, 0.01, 8, 400 * time.Millisecond},
	// A geostationary satellite: 558 ms for light (RFC 2488, section 2) and what the access
	// takes; about 600 ms in Michel, Trevisan, Giordano, Bonaventure, "A First Look at Starlink
	// Performance", IMC 2022.
	{"geo", 600 * time.Millisecond, 0, 50e6, 5e6, 0.005, 0, 300 * time.Millisecond},
	// A constellation in low orbit: 40 to 60 ms for the middle half of the echoes to anchors
	// in Europe, and 100 to 200 Mbit/s (Michel et al., as above). Satellites change every 15 s,
	// hence bursts.
	{"leo", 40 * time.Millisecond, 20 * time.Millisecond, 150e6, 15e6, 0.005, 4, 100 * time.Millisecond},
}

// profileWarmup is what slow start has: twelve round trips of a geostationary satellite.
const profileWarmup = 8 * time.Second

// profileScenarios are a stream to the edge, and one from it, for each profile.
func profileScenarios() (out []Scenario) {
	for _, one := range profiles {
		down := Path{
			RTT: one.rtt, Jitter: one.jitter, Rate: one.down, BackRate: one.up,
			Loss: one.loss, Burst: one.burst, Queue: one.queue,
		}
		up := down
		up.Rate, up.BackRate = one.up, one.down
		for i, p := range []Path{down, up} {
			s := stream(one.name+"/"+[]string{"down", "up"}[i], "One TCP stream to the edge and from it, by the kind of path",
				p, bench.WireGuardBBR, bench.WireGuardCUBIC)
			s.warmup, s.window = profileWarmup, lossyWindow
			out = append(out, s)
		}
	}
	return out
}
