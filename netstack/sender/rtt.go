package sender

import "time"

const (
	// granularity is the timer's, RFC 6298's G.
	granularity = time.Millisecond
	// minTimeout is the least retransmission timeout. RFC 6298 §2.4 wants a second; Linux
	// and gVisor take 200 ms, which is well above the 40 ms by which Linux delays
	// acknowledgements.
	minTimeout = 200 * time.Millisecond
	// maxTimeout is the greatest, as netstack's maxRTO: an outage ends when another path
	// has been found, and a flow should go on then.
	maxTimeout = 2 * time.Second
)

// roundTrips are the smoothed round-trip time and its variation (RFC 6298 §2).
type roundTrips struct{ smoothed, variation time.Duration }

func (r *roundTrips) add(rtt time.Duration) {
	if r.smoothed == 0 {
		r.smoothed, r.variation = rtt, rtt/2
		return
	}
	r.variation += ((r.smoothed - rtt).Abs() - r.variation) / 4
	r.smoothed += (rtt - r.smoothed) / 8
}

// timeout is the retransmission timeout after so many that were in vain.
func (r *roundTrips) timeout(backoff int) time.Duration {
	d := max(r.smoothed+max(granularity, 4*r.variation), minTimeout)
	return min(d<<min(backoff, 8), max(maxTimeout, d))
}
