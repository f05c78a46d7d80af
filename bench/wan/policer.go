package wan

import "time"

// policer is a token bucket that drops packets without enough tokens. A token is a byte, headers
// included. The bucket starts full. The zero value drops nothing.
type policer struct {
	rate   float64 // tokens a second
	burst  float64 // maximum number of tokens
	tokens float64
	at     time.Duration // when there were so many tokens
}

func newPolicer(p Path) policer {
	burst := float64(p.PoliceBurst)
	return policer{rate: p.Police / 8, burst: burst, tokens: burst}
}

// pass reports whether a packet passes.
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
