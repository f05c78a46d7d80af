package path

import "time"

// TripBounds are the histogram bounds of round trips. They separate a local network, a continent,
// an ocean and a queue.
var TripBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
}

// Trips is a histogram of the round trips of probes on the paths that were in use.
type Trips struct {
	// Within counts the round trips of at most the bound with the same index.
	Within [len(TripBounds)]uint64
	Count  uint64
	Sum    time.Duration
}

func (t *Trips) add(rtt time.Duration) {
	t.Count++
	t.Sum += rtt
	for i := len(TripBounds) - 1; i >= 0 && rtt <= TripBounds[i]; i-- {
		t.Within[i]++
	}
}
