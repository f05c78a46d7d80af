package simnet

import (
	"fmt"
	"math"
	"time"
)

// Conditions are what one direction of a link does to datagrams. The zero value is a
// perfect wire: no limit, no delay, no loss.
type Conditions struct {
	// Rate in bit/s of IP packets; 0 = no limit.
	Rate int64
	// Queue in bytes of IP packets that wait for the rate; 0 = 50 ms' worth, at least
	// 64 KiB. What does not fit is dropped. Without Rate nothing waits.
	Queue int
	// Delay is the one-way propagation time.
	Delay time.Duration
	// Jitter is added to the delay, uniformly from 0 to Jitter. It keeps the order.
	Jitter time.Duration
	// Loss is the probability that a datagram is lost, 0 to 1.
	Loss float64
	// Reorder is the probability that a datagram is held back by ReorderDelay while
	// later ones overtake it.
	Reorder      float64
	ReorderDelay time.Duration // 0 = 2 ms
	// MTU in bytes of IP packets; 0 = 1500. What exceeds it is dropped with an ICMP
	// error unless the next two say otherwise.
	MTU int
	// Fragment cuts what exceeds the MTU, unless it was sent with the don't-fragment
	// bit or is IPv6 on its way; without it the network passes no fragments. A datagram
	// that was cut is lost with any of its fragments.
	Fragment bool
	// SilentMTU drops what exceeds the MTU without an ICMP error: a black hole.
	SilentMTU bool
	// Hops is the number of routers on the way, each of which takes one from the TTL.
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

// shaper is the arithmetic of one direction of a link. It holds no clock.
type shaper struct {
	Conditions
	dice *dice
	// busyUntil is when the last datagram taken has left the transmitter.
	busyUntil time.Time
	// lastArrival is the latest arrival of those not held back.
	lastArrival time.Time
}

// send takes a datagram of so many IP packets and bytes in all at now and says when all
// of it has arrived, or why not.
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
	// The draws are the same in number whatever the conditions are, so that changing
	// one of them does not reshuffle the others.
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

// inOrder keeps a datagram behind those sent before it.
func (s *shaper) inOrder(arrives time.Time) time.Time {
	if s.lastArrival.After(arrives) {
		return s.lastArrival
	}
	s.lastArrival = arrives
	return arrives
}
