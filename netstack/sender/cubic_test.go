package sender

import (
	"math"
	"time"
)

// cubicFlow is a sender with CUBIC (RFC 9438), loss detection by three later packets (RFC 6675) and
// no pacing. Its peer acknowledges each packet.
type cubicFlow struct {
	s       *sim
	id      int
	window  float64 // packets
	slow    float64 // slow start threshold
	most, k float64
	reno    float64
	epoch   time.Duration // -1: not begun
	next    int
	recover int      // don't cut again for packets before this one
	newest  int      // that arrived
	train   int      // packets that are sent, and acknowledged, at a time; 0 is 1
	waiting []func() // for their acknowledgement
	out     map[int]time.Duration
	order   []int
	smooth  time.Duration
	bytes   int64
}

// answer acknowledges what has arrived.
func (c *cubicFlow) answer() {
	waiting := c.waiting
	c.waiting = nil
	if len(waiting) > 0 {
		c.s.answer(func() {
			for _, ack := range waiting {
				ack()
			}
		})
	}
}

func (c *cubicFlow) start() {
	c.window, c.slow, c.epoch, c.newest = 10, math.MaxInt32, -1, -1
	c.smooth, c.out = c.s.path.rtt, make(map[int]time.Duration)
	c.fill()
	c.watch()
}

func (c *cubicFlow) delivered() int64 { return c.bytes }

func (c *cubicFlow) fill() {
	if c.train > 1 && float64(len(c.out)+c.train) > c.window && len(c.out) > 0 {
		return
	}
	for float64(len(c.out)) < c.window {
		n, sent := c.next, c.s.now
		c.next++
		c.out[n] = sent
		c.order = append(c.order, n)
		c.s.send(c.id, simMSS, func() {
			c.bytes += simMSS
			c.waiting = append(c.waiting, func() { c.onAck(n, sent) })
			if len(c.waiting) < c.train {
				if len(c.waiting) == 1 {
					c.s.at(c.s.now+delayedAck, c.answer)
				}
				return
			}
			c.answer()
		})
	}
}

// watch detects losses that no later packet reveals.
func (c *cubicFlow) watch() {
	for len(c.order) > 0 {
		n := c.order[0]
		sent, out := c.out[n]
		if out && c.s.now-sent < max(200*time.Millisecond, 3*c.smooth) {
			break
		}
		if out {
			c.lose(n)
		}
		c.order = c.order[1:]
	}
	c.fill()
	c.s.at(c.s.now+20*time.Millisecond, c.watch)
}

func (c *cubicFlow) lose(n int) {
	delete(c.out, n)
	if n < c.recover {
		return
	}
	c.recover, c.epoch = c.next, -1
	if c.window < c.most {
		c.most = c.window * (1 + cubicBeta) / 2
	} else {
		c.most = c.window
	}
	c.window = max(2, c.window*cubicBeta)
	c.slow = c.window
}

func (c *cubicFlow) onAck(n int, sent time.Duration) {
	if _, out := c.out[n]; !out {
		return
	}
	delete(c.out, n)
	c.smooth += (c.s.now - sent - c.smooth) / 8
	c.newest = max(c.newest, n)
	for len(c.order) > 0 && c.order[0] <= c.newest-3 {
		if _, out := c.out[c.order[0]]; out {
			c.lose(c.order[0])
		}
		c.order = c.order[1:]
	}
	if c.newest >= c.recover {
		c.grow()
	}
	c.fill()
}

func (c *cubicFlow) grow() {
	if c.window < c.slow {
		c.window++
		return
	}
	if c.epoch < 0 {
		c.epoch = c.s.now
		c.k = math.Cbrt(max(0, c.most-c.window) / cubicC)
		c.reno = c.window
	}
	t := (c.s.now - c.epoch + c.smooth).Seconds() - c.k
	c.reno += 3 * (1 - cubicBeta) / (1 + cubicBeta) / c.window
	if target := max(cubicC*t*t*t+c.most, c.reno); target > c.window {
		c.window += min((target-c.window)/c.window, 0.5)
	}
}
