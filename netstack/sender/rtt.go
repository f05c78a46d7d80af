package sender

import "time"

const (
	// granularity is RFC 6298's clock granularity G.
	granularity = time.Millisecond
	// minTimeout is the minimum retransmission timeout. RFC 6298 §2.4 wants a second. Linux and
	// gVisor use 200 ms, well above the 40 ms by which Linux delays acknowledgements.
	minTimeout = 200 * time.Millisecond
	// maxTimeout is the maximum, as netstack's maxRTO. An outage ends when another path has been
	// found, and a flow should continue soon after.
	maxTimeout = 2 * time.Second
)

// roundTrips holds the smoothed round-trip time and its variation (RFC 6298 §2).
type roundTrips struct{ smoothed, variation time.Duration }

func (r *roundTrips) add(rtt time.Duration) {
	if r.smoothed == 0 {
		r.smoothed, r.variation = rtt, rtt/2
		return
	}
	r.variation += ((r.smoothed - rtt).Abs() - r.variation) / 4
	r.smoothed += (rtt - r.smoothed) / 8
}

// timeout returns the retransmission timeout after backoff timeouts in a row.
func (r *roundTrips) timeout(backoff int) time.Duration {
	d := max(r.smoothed+max(granularity, 4*r.variation), minTimeout)
	return min(d<<min(backoff, 8), max(maxTimeout, d))
}
