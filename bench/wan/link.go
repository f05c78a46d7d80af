package wan

import "time"

// Counters are a link's packets by what became of them.
type Counters struct {
	Forwarded uint64 `json:"forwarded"` // Delivered.
	Bytes     uint64 `json:"bytes"`     // Their payload.
	Lost      uint64 `json:"lost"`      // By chance.
	Policed   uint64 `json:"policed"`   // By the policer.
	Overflow  uint64 `json:"overflow"`  // Because the queue was full.
}

// plus are both together.
func (c Counters) plus(o Counters) Counters {
	return Counters{c.Forwarded + o.Forwarded, c.Bytes + o.Bytes, c.Lost + o.Lost, c.Policed + o.Policed, c.Overflow + o.Overflow}
}

// minus is what there is since o.
func (c Counters) minus(o Counters) Counters {
	return Counters{c.Forwarded - o.Forwarded, c.Bytes - o.Bytes, c.Lost - o.Lost, c.Policed - o.Policed, c.Overflow - o.Overflow}
}

// Link is one direction of a path, for one tunnel or more that share it. Times are
// durations since any one moment, and don't go back. It is not safe for concurrent use.
type Link struct {
	path     Path
	queue    time.Duration // Of a full queue.
	losses   losses
	policer  policer
	jitter   jitter
	free     time.Duration // When the transmitter will have sent all that it was given.
	latest   time.Duration // When the last of those that keep the order is due.
	packets  fifo
	strays   strays
	counters []Counters // By tunnel.
}

// NewLink makes an empty link for tunnels, numbered from 0. Both directions of a path lose
// the packets of the same numbers, so that it doesn't matter which end spoke first.
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

// Offer gives a tunnel's packet, UDP payload, to the link at a time. It is copied if it is
// kept. Empty ones are ignored: they would be no segment of a run.
func (l *Link) Offer(now time.Duration, tunnel int, packet []byte) {
	if len(packet) == 0 {
		return
	}
	c := &l.counters[tunnel]
	lost, behind := l.losses.next(), l.strays.next() // For every packet, so that numbers decide.
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
	if end-now > l.queue { // What waits is what the transmitter has still to send.
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

// Next is when the next packet is to be delivered; ok is false while there is none.
func (l *Link) Next() (due time.Duration, ok bool) {
	due, ok = l.packets.due()
	if behind, any := l.strays.due(); any && (!ok || behind < due) {
		return behind, true
	}
	return due, ok
}

// Take returns what is due of one tunnel, up to a time, in order: packets of a size, of
// which only the last may be shorter, one after the other, as many as one UDP_SEGMENT call
// can send. It is empty when nothing is due. The memory is valid until the next call of
// Take.
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

// Counters are those so far, by tunnel.
func (l *Link) Counters() []Counters { return l.counters }
