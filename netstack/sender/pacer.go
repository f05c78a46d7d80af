package sender

import "time"

const (
	// creditLeast is what may always be sent in one go after a late wake-up, as time.
	creditLeast = time.Millisecond
	// creditMost bounds what is made up for when a wake-up was late: discarding it cost a
	// flow on a busy machine most of its rate.
	creditMost = 25 * time.Millisecond
	// makeUp is at how many times the rate: all of it in one go is 2,000 packets at 1 Gbit/s, for
	// each of which WireGuard has a buffer of 64 KB until it is sent.
	makeUp = 2
)

// pacer spreads packets over time (draft-ietf-ccwg-bbr). It is in payload bytes as
// the bandwidth is: paced by packets with their headers, a flow is slower by those.
type pacer struct {
	next   time.Duration // when the next packet is to leave
	soon   time.Duration // when it may at the earliest, to make up for a late wake-up
	waited bool          // for that alone, since the last one
}

// due is when the next packet may leave.
func (p *pacer) due() time.Duration { return max(p.next, p.soon) }

// sent books a packet.
func (p *pacer) sent(now time.Duration, size int, rate float64, minRTT time.Duration) {
	credit := creditLeast
	if p.waited {
		credit = max(credit, min(minRTT/2, creditMost))
	}
	takes := time.Duration(float64(max(size, 64)) / rate * 1e9)
	p.next = max(p.next, now-credit) + takes
	p.soon = max(p.soon, now-creditLeast) + takes/makeUp
	p.waited = false
}
