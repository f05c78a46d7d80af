package wan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	// headers is what each datagram has on the wire besides its payload, in bytes: IPv4 20,
	// UDP 8. The rate counts them.
	headers = 28
	// leastQueue is the least queue of a path that states none: what a small router has. A
	// queue of one bandwidth-delay product at 1 Gbit/s and 1 ms would be 125 KB, which is
	// two of the bursts that segmentation offload makes.
	leastQueue = 256 << 10
)

// Path is what lies between two ends. Both directions are alike.
type Path struct {
	// RTT is the round-trip time of an empty path; each direction takes half of it.
	RTT time.Duration `json:"rttNanoseconds"`
	// Rate of each direction in bits per second, IP and UDP headers included.
	Rate float64 `json:"rateBitsPerSecond"`
	// Loss is the probability that a packet gets lost before it reaches the queue.
	Loss float64 `json:"loss"`
	// Queue is the number of bytes that may wait for the transmitter, the packet being
	// transmitted included; 0 means one bandwidth-delay product, and 256 KiB at least.
	Queue int `json:"queueBytes,omitempty"`
	// Seed decides which packets get lost.
	Seed uint64 `json:"seed"`
}

// QueueBytes is the queue's bound in bytes.
func (p Path) QueueBytes() int {
	if p.Queue > 0 {
		return p.Queue
	}
	return max(leastQueue, int(p.Rate/8*p.RTT.Seconds()))
}

// QueueDelay is how long the last byte of a full queue waits.
func (p Path) QueueDelay() time.Duration {
	return time.Duration(math.Round(float64(p.QueueBytes()) * 8 / p.Rate * float64(time.Second)))
}

func (p Path) check() error {
	switch {
	case p.RTT < 0:
		return fmt.Errorf("wan: a round-trip time of %s", p.RTT)
	case p.Rate <= 0:
		return fmt.Errorf("wan: a rate of %g bit/s", p.Rate)
	case p.Loss < 0 || p.Loss >= 1:
		return fmt.Errorf("wan: a loss of %g; want a probability below 1", p.Loss)
	case p.Queue < 0:
		return fmt.Errorf("wan: a queue of %d bytes", p.Queue)
	}
	return nil
}

// Counters are a link's packets by what became of them.
type Counters struct {
	Forwarded uint64 `json:"forwarded"` // Delivered.
	Bytes     uint64 `json:"bytes"`     // Their payload.
	Lost      uint64 `json:"lost"`      // By chance.
	Overflow  uint64 `json:"overflow"`  // Because the queue was full.
}

// Link is one direction of a path. Times are durations since any one moment, and don't go
// back. It is not safe for concurrent use.
type Link struct {
	path     Path
	random   *rand.Rand
	free     time.Duration // When the transmitter will have sent all that it was given.
	packets  fifo
	counters Counters
}

// NewLink makes an empty link. Both directions of a path lose the packets of the same
// numbers, so that it doesn't matter which end spoke first.
func NewLink(p Path) (*Link, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return &Link{path: p, random: rand.New(rand.NewPCG(p.Seed, 0))}, nil
}

// Offer gives a packet, UDP payload, to the link at a time. It is copied if it is kept.
// Empty ones are ignored: they would be no segment of a run.
func (l *Link) Offer(now time.Duration, packet []byte) {
	if len(packet) == 0 {
		return
	}
	if l.random.Float64() < l.path.Loss { // For every packet, so that numbers decide.
		l.counters.Lost++
		return
	}
	size := len(packet) + headers
	begin := max(l.free, now)
	end := begin + l.transmission(size)
	// What waits is what the transmitter has still to send.
	if end-now > l.transmission(l.path.QueueBytes()) {
		l.counters.Overflow++
		return
	}
	l.free = end
	l.packets.push(packet, end+l.path.RTT/2)
}

// transmission is how long the transmitter takes for some bytes.
func (l *Link) transmission(bytes int) time.Duration {
	return time.Duration(math.Round(float64(bytes) * 8 / l.path.Rate * float64(time.Second)))
}

// Next is when the next packet is to be delivered; ok is false while there is none.
func (l *Link) Next() (due time.Duration, ok bool) { return l.packets.due() }

// Take returns what is due, up to a time, in order: packets of a size, of which only the
// last may be shorter, one after the other, as many as one UDP_SEGMENT call can send. It
// is empty when nothing is due. The memory is valid until the next call of Take.
func (l *Link) Take(until time.Duration) (packets []byte, size int) {
	packets, size, n := l.packets.pop(until)
	l.counters.Forwarded += uint64(n)
	l.counters.Bytes += uint64(len(packets))
	return packets, size
}

// Counters are those so far.
func (l *Link) Counters() Counters { return l.counters }
