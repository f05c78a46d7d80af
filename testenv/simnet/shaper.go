package simnet

import (
	"fmt"
	"math"
	"time"
)

// Conditions are the properties of one direction of a link. The zero value is perfect: no limit,
// no delay, no loss.
type Conditions struct {
	// Rate in bit/s of IP packets; 0 means unlimited.
	Rate int64
	// Queue in bytes of IP packets that wait for the rate; 0 means 50 ms' worth, but at least 64
	// KiB. What does not fit is dropped. Without Rate nothing waits.
	Queue int
	// Delay is the one-way propagation time.
	Delay time.Duration
	// Jitter is added to the delay, uniformly from 0 to Jitter. It does not reorder datagrams.
	Jitter time.Duration
	// Loss is the probability that a datagram is lost, 0 to 1.
	Loss float64
	// Reorder is the probability that a datagram is delayed by ReorderDelay while later ones
	// overtake it.
	Reorder      float64
	ReorderDelay time.Duration // 0 means 2 ms
	// MTU in bytes of IP packets; 0 means 1500. Larger ones are dropped with an ICMP error,
	// subject to the next two fields.
	MTU int
	// Fragment fragments what exceeds the MTU, except for datagrams with the don't-fragment bit
	// and forwarded IPv6. Without it the network passes no fragments. A fragmented datagram is
	// lost if any of its fragments is.
	Fragment bool
	// SilentMTU drops what exceeds the MTU without an ICMP error: a black hole.
	SilentMTU bool
	// Hops is the number of routers on the link, each of which decrements the TTL.
	Hops uint8
}

// Defaults of [Conditions].
const (
	DefaultMTU          = 1500 // bytes, Ethernet
	defaultReorderDelay = 2 * time.Millisecond
	minQueue            = 64 << 10 // bytes
	queueTime           = 50 * time.Millisecond
)

func (c Conditions) withDefaults() (Conditions, error) {
	switch {
	case c.Rate < 0, c.Queue < 0, c.Delay < 0, c.Jitter < 0, c.ReorderDelay < 0, c.MTU < 0:
		return c, fmt.Errorf("simnet: negative value in link conditions %+v", c)
	case c.Loss < 0 || c.Loss > 1 || c.Reorder < 0 || c.Reorder > 1:
		return c, fmt.Errorf("simnet: probability outside 0 to 1 in link conditions %+v", c)
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.ReorderDelay == 0 {
		c.ReorderDelay = defaultReorderDelay
	}
	if c.Queue == 0 {
		c.Queue = max(minQueue, int(float64(c.Rate)/8*queueTime.Seconds()))
	}
	return c, nil
}

// shaper is the arithmetic of one direction of a link. It has no clock.
type shaper struct {
	Conditions
	dice *dice
	// busyUntil is when the transmitter will have sent all datagrams so far.
	busyUntil time.Time
	// lastArrival is the latest arrival of datagrams that were not reordered.
	lastArrival time.Time
}

// send sends a datagram of the given number of IP packets and total bytes at now. It returns when
// all of it has arrived, or why it was dropped.
func (s *shaper) send(now time.Time, size, pieces int, flow uint64) (time.Time, Reason) {
	departs := now
	if s.Rate > 0 {
		if s.busyUntil.After(now) {
			departs = s.busyUntil
		}
		waiting := float64(departs.Sub(now)) / float64(time.Second) * float64(s.Rate) / 8
		if waiting > 0 && int(waiting)+size > s.Queue {
			return time.Time{}, DropQueueFull
		}
		departs = departs.Add(time.Duration(float64(size) * 8 / float64(s.Rate) * float64(time.Second)))
		s.busyUntil = departs
	}
	arrives := departs.Add(s.Delay)
	if s.Loss == 0 && s.Jitter == 0 && s.Reorder == 0 {
		return s.inOrder(arrives), ""
	}
	// Always draw the same number of values, so that changing one condition does not affect the
	// others.
	r := s.dice.roll(flow)
	lost, jitter, reorder := r.float(), r.float(), r.float()
	if lost < 1-math.Pow(1-s.Loss, float64(pieces)) {
		return time.Time{}, DropLoss
	}
	arrives = arrives.Add(time.Duration(jitter * float64(s.Jitter)))
	if reorder < s.Reorder {
		return arrives.Add(s.ReorderDelay), ""
	}
	return s.inOrder(arrives), ""
}

// inOrder keeps a datagram behind earlier ones.
func (s *shaper) inOrder(arrives time.Time) time.Time {
	if s.lastArrival.After(arrives) {
		return s.lastArrival
	}
	s.lastArrival = arrives
	return arrives
}
