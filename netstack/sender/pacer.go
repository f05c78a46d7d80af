package sender

import "time"

const (
	// creditLeast is how much may always be sent at once after a late wake-up, as time.
	creditLeast = time.Millisecond
	// creditMost bounds how much is made up for after a late wake-up. Without making up, a flow on
	// a busy machine lost most of its rate.
	creditMost = 25 * time.Millisecond
	// makeUp is the multiple of the rate at which it is made up for. All at once would be 2,000
	// packets at 1 Gbit/s, and WireGuard holds a buffer of 64 KB for each until it is sent.
	makeUp = 2
)

// pacer spreads packets over time (draft-ietf-ccwg-bbr). It counts payload bytes, as the bandwidth
// does. Counting headers too would slow a flow down by their size.
type pacer struct {
	next   time.Duration // when the next packet is to leave
	soon   time.Duration // the earliest time, to make up for a late wake-up
	waited bool          // since the last packet, for the pacer alone
}

// due returns when the next packet may leave.
func (p *pacer) due() time.Duration { return max(p.next, p.soon) }

// sent records a packet.
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
