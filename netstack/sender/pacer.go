package sender

import "time"

const (
	// creditLeast is what may always be sent in one go after a late wake-up, as time.
	creditLeast = time.Millisecond
	// creditMost bounds what is made up for when a wake-up was late: discarding it cost a
	// flow on a busy machine most of its rate.
	creditMost = 25 * time.Millisecond
)

// pacer spreads packets over time (draft-ietf-ccwg-bbr). It is in payload bytes as
// the bandwidth is: paced by packets with their headers, a flow is slower by those.
type pacer struct {
	next   time.Duration // when the next packet may leave
	waited bool          // for that alone, since the last one
}

// sent books a packet.
func (p *pacer) sent(now time.Duration, size int, rate float64, minRTT time.Duration) {
	credit := creditLeast
	if p.waited {
		credit = max(credit, min(minRTT/2, creditMost))
	}
	p.next = max(p.next, now-credit) + time.Duration(float64(max(size, 64))/rate*1e9)
	p.waited = false
}
