package wan

import "time"

// Counters count a link's packets by what happened to them.
type Counters struct {
	Forwarded uint64 `json:"forwarded"` // delivered
	Bytes     uint64 `json:"bytes"`     // payload of these
	Lost      uint64 `json:"lost"`      // by chance
	Policed   uint64 `json:"policed"`   // by the policer
	Overflow  uint64 `json:"overflow"`  // because the queue was full
}

// plus returns the sum of c and o.
func (c Counters) plus(o Counters) Counters {
	return Counters{c.Forwarded + o.Forwarded, c.Bytes + o.Bytes, c.Lost + o.Lost, c.Policed + o.Policed, c.Overflow + o.Overflow}
}

// minus returns c - o.
func (c Counters) minus(o Counters) Counters {
	return Counters{c.Forwarded - o.Forwarded, c.Bytes - o.Bytes, c.Lost - o.Lost, c.Policed - o.Policed, c.Overflow - o.Overflow}
}

// Link is one direction of a path, shared by one or more tunnels. Times are durations since some
// moment, and must not decrease. It is not safe for concurrent use.
type Link struct {
	path     Path
	queue    time.Duration // delay of a full queue
	losses   losses
	policer  policer
	jitter   jitter
	free     time.Duration // when the transmitter will have sent all packets so far
	latest   time.Duration // when the last packet that keeps the order is due
	packets  fifo
	strays   strays
	counters []Counters // by tunnel
}

// NewLink returns an empty link for tunnels, numbered from 0. Both directions of a path lose
// packets of the same numbers, so it does not matter which end spoke first.
func NewLink(p Path, tunnels int) (*Link, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return &Link{
		path: p, queue: p.QueueDelay(), losses: newLosses(p), policer: newPolicer(p),
		jitter: jitter{seed: p.Seed, most: p.Jitter / 2}, strays: newStrays(p),
		counters: make([]Counters, tunnels),
	}, nil
}

// Offer passes a tunnel's packet, a UDP payload, to the link. A queued packet is copied. Empty
// packets are ignored: they cannot be a segment of a run.
func (l *Link) Offer(now time.Duration, tunnel int, packet []byte) {
	if len(packet) == 0 {
		return
	}
	c := &l.counters[tunnel]
	lost, behind := l.losses.next(), l.strays.next() // for every packet, so that only numbers decide
	if lost {
		c.Lost++
		return
	}
	size := len(packet) + headers
	if !l.policer.pass(now, size) {
		c.Policed++
		return
	}
	begin := max(l.free, now)
	end := begin + l.path.transmission(size)
	if end-now > l.queue { // the queue is what the transmitter has still to send
		c.Overflow++
		return
	}
	l.free = end
	due := max(l.latest, end+l.path.RTT/2+l.jitter.at(end))
	if behind > 0 {
		l.strays.push(packet, tunnel, due+behind)
		return
	}
	l.latest = due
	l.packets.push(packet, tunnel, due)
}

// Next returns when the next packet is due; ok is false if there is none.
func (l *Link) Next() (due time.Duration, ok bool) {
	due, ok = l.packets.due()
	if behind, any := l.strays.due(); any && (!ok || behind < due) {
		return behind, true
	}
	return due, ok
}

// Take returns packets of one tunnel that are due, in order and contiguous: all of one size,
// except that the last may be shorter, and as many as one UDP_SEGMENT call can send. It is empty
// if nothing is due. The memory is valid until the next call of Take.
func (l *Link) Take(until time.Duration) (packets []byte, size, tunnel int) {
	var n int
	behind, any := l.strays.due()
	if due, ok := l.packets.due(); any && behind <= until && (!ok || behind < due) {
		s := l.strays.pop()
		packets, size, tunnel, n = s.packet, len(s.packet), s.tunnel, 1
	} else {
		if any {
			until = min(until, behind)
		}
		packets, size, tunnel, n = l.packets.pop(until)
	}
	l.counters[tunnel].Forwarded += uint64(n)
	l.counters[tunnel].Bytes += uint64(len(packets))
	return packets, size, tunnel
}

// Counters returns the counters so far, by tunnel.
func (l *Link) Counters() []Counters { return l.counters }
