package sender

import (
	"math"
	"time"
)

const (
	cubicBeta = 0.7 // RFC 9438 §4.6
	cubicC    = 0.4 // RFC 9438 §5
	// minWindow is in packets (draft-ietf-ccwg-bbr, MinPipeCwnd).
	minWindow = 4
)

// bound limits the data in flight once congestion loss has been seen. It is BBR's
// inflight_longterm, but grows by CUBIC's curve (RFC 9438), so that beside CUBIC flows it takes
// what one of them would.
type bound struct {
	packet   int           // bytes
	bytes    int           // 0 is none
	most     float64       // packets: W_max
	last     float64       // packets at the last cut
	k        float64       // seconds: K
	friendly float64       // packets: W_est, what Reno would have (RFC 9438 §4.3)
	cutAt    time.Duration // growth counts from here
}

// set starts with a window, as long after a cut.
func (b *bound) set(now time.Duration, bytes int) {
	b.bytes = max(bytes, minWindow*b.packet)
	w := float64(b.bytes) / float64(b.packet)
	b.most, b.last, b.friendly, b.k, b.cutAt = w, w, w, 0, now
}

// cut responds to congestion with flight bytes in flight.
func (b *bound) cut(now time.Duration, flight int) {
	w := float64(flight) / float64(b.packet)
	if b.bytes > 0 {
		w = min(w, float64(b.bytes)/float64(b.packet))
	}
	b.most = w
	if w < b.last { // Fast convergence, RFC 9438 §4.7.
		b.most = w * (1 + cubicBeta) / 2
	}
	b.last = w
	b.k = math.Cbrt(max(0, b.most-w*cubicBeta) / cubicC)
	b.cutAt, b.friendly = now, w*cubicBeta
	b.bytes = max(int(w*cubicBeta), minWindow) * b.packet
}

// grow is called once a round trip with the most that was in flight in it. A window that isn't used
// doesn't grow (RFC 9438 §5.8).
func (b *bound) grow(now, rtt time.Duration, flight int) {
	if b.bytes == 0 {
		return
	}
	if flight < b.bytes*3/4 {
		b.cutAt += rtt
		return
	}
	b.friendly += 3 * (1 - cubicBeta) / (1 + cubicBeta)
	t := (now - b.cutAt).Seconds() + rtt.Seconds() - b.k
	w := max(cubicC*t*t*t+b.most, b.friendly)
	b.bytes = min(max(b.bytes, int(w)*b.packet), b.bytes*3/2)
}

// recover is called once a round trip while there is no queue: the cut was deeper than necessary,
// or unnecessary. The window grows fast up to near the last cut, then slower, and no further than
// enough.
func (b *bound) recover(flight, enough int) {
	if b.bytes == 0 || flight < b.bytes*3/4 || b.bytes >= enough {
		return
	}
	if near := int(b.last*0.9) * b.packet; b.bytes < near {
		b.bytes = min(b.bytes*5/4, near)
	} else {
		b.bytes += b.bytes / 16
	}
}
