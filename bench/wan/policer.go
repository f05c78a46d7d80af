package wan

import "time"

// policer is a token bucket that drops what it has no tokens for: a token is a byte with
// its headers. It begins full. The zero value lets everything pass.
type policer struct {
	rate   float64 // Tokens a second.
	burst  float64 // The most that there are.
	tokens float64
	at     time.Duration // When there were so many.
}

func newPolicer(p Path) policer {
	burst := float64(p.PoliceBurst)
	return policer{rate: p.Police / 8, burst: burst, tokens: burst}
}

// pass reports whether a packet of a size passes.
func (p *policer) pass(now time.Duration, size int) bool {
	if p.rate == 0 {
		return true
	}
	p.tokens = min(p.burst, p.tokens+(now-p.at).Seconds()*p.rate)
	p.at = now
	if p.tokens < float64(size) {
		return false
	}
	p.tokens -= float64(size)
	return true
}
