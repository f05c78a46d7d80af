package wan

import (
	"time"

	"github.com/postern-dev/postern/bench"
)

// profile is a typical path of a kind.
type profile struct {
	name     string
	rtt      time.Duration
	jitter   time.Duration // maximum increase of a round trip
	down, up float64       // to the edge and from it, in bits per second
	loss     float64
	burst    float64 // mean number of packets lost in a row; 0 for single losses
	queue    time.Duration
}

// profiles are typical paths of edges. Values that the sources do not state were chosen.
var profiles = []profile{
	// A good cell: 25 to 55 ms without load, and a queue limited only by memory, as in Jiang, Wang,
	// Lee, Rhee, "Tackling Bufferbloat in 3G/4G Networks", IMC 2012. The bursts of losses are those
	// of handovers.
	{"lte", 25 * time.Millisecond, 30 * time.Millisecond, 30e6, 10e6, 0.01, 8, 400 * time.Millisecond},
	// A geostationary satellite: 558 ms for light (RFC 2488, section 2) plus the access network.
	// Michel, Trevisan, Giordano, Bonaventure, "A First Look at Starlink Performance", IMC 2022,
	// measured about 600 ms.
	{"geo", 600 * time.Millisecond, 0, 50e6, 5e6, 0.005, 0, 300 * time.Millisecond},
	// A low-orbit constellation: 40 to 60 ms for the middle half of the echoes to anchors in
	// Europe, and 100 to 200 Mbit/s (Michel et al., as above). Satellites change every 15 s,
	// hence bursts.
	{"leo", 40 * time.Millisecond, 20 * time.Millisecond, 150e6, 15e6, 0.005, 4, 100 * time.Millisecond},
}

// profileWarmup is long enough for slow start: twelve round trips of a geostationary satellite.
const profileWarmup = 8 * time.Second

// profileScenarios are a stream to the edge and one from it, for each profile.
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
