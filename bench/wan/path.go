package wan

import (
	"fmt"
	"math"
	"time"
)

const (
	// headers is the size of a datagram's headers on the wire in bytes: IPv4 20, UDP 8. The rate
	// includes them.
	headers = 28
	// leastQueue is the minimum queue of a path without an explicit one: that of a small router.
	// One bandwidth-delay product at 1 Gbit/s and 1 ms would be 125 KB, just two of the bursts of
	// segmentation offload.
	leastQueue = 256 << 10
)

// Path describes what is between two ends. Both directions are alike, except for their rates.
type Path struct {
	// RTT is the round-trip time of an empty path; each direction takes half of it.
	RTT time.Duration `json:"rttNanoseconds"`
	// Rate of each direction in bits per second, IP and UDP headers included.
	Rate float64 `json:"rateBitsPerSecond"`
	// BackRate replaces Rate towards the end that sends; 0 means Rate.
	BackRate float64 `json:"backRateBitsPerSecond,omitempty"`
	// Loss is the probability that a packet gets lost before it reaches the queue. Burst is the
	// mean number of packets lost in a row; 0 means independent losses.
	Loss  float64 `json:"loss"`
	Burst float64 `json:"burstPackets,omitempty"`
	// Jitter is the maximum increase of a round trip, half of it each way.
	Jitter time.Duration `json:"jitterNanoseconds,omitempty"`
	// Reorder is the probability that a packet falls behind: it takes up to ReorderBy longer, and
	// later packets do not wait.
	Reorder   float64       `json:"reorder,omitempty"`
	ReorderBy time.Duration `json:"reorderByNanoseconds,omitempty"`
	// Police is the rate, in bits per second with headers, above which a policer drops packets.
	// PoliceBurst is its bucket in bytes. 0 means no policer.
	Police      float64 `json:"policeBitsPerSecond,omitempty"`
	PoliceBurst int     `json:"policeBurstBytes,omitempty"`
	// Queue is how long the last byte of a full queue waits for the transmitter; 0 means one
	// bandwidth-delay product, but at least 256 KiB.
	Queue time.Duration `json:"queueNanoseconds,omitempty"`
	// Seed is the seed of all random decisions.
	Seed uint64 `json:"seed"`
}

// QueueDelay returns how long the last byte of a full queue waits.
func (p Path) QueueDelay() time.Duration {
	if p.Queue > 0 {
		return p.Queue
	}
	return max(p.RTT, p.transmission(leastQueue))
}

// transmission returns how long the transmitter takes for a number of bytes.
func (p Path) transmission(bytes int) time.Duration {
	return time.Duration(math.Round(float64(bytes) * 8 / p.Rate * float64(time.Second)))
}

// back returns the path with the rate of the direction towards the end that sends.
func (p Path) back() Path {
	if p.BackRate > 0 {
		p.Rate = p.BackRate
	}
	return p
}

func (p Path) check() error {
	switch {
	case p.RTT < 0:
		return fmt.Errorf("wan: a round-trip time of %s", p.RTT)
	case p.Rate <= 0 || p.BackRate < 0:
		return fmt.Errorf("wan: a rate of %g bit/s, and of %g back", p.Rate, p.BackRate)
	case p.Loss < 0 || p.Loss >= 1:
		return fmt.Errorf("wan: a loss of %g; want a probability below 1", p.Loss)
	case p.Burst != 0 && (p.Burst < 1 || p.Burst*(1-p.Loss) < p.Loss):
		return fmt.Errorf("wan: bursts of %g packets with a loss of %g", p.Burst, p.Loss)
	case p.Jitter < 0:
		return fmt.Errorf("wan: a jitter of %s", p.Jitter)
	case p.Reorder < 0 || p.Reorder > 1 || p.ReorderBy < 0 || (p.Reorder > 0) != (p.ReorderBy > 0):
		return fmt.Errorf("wan: %g of the packets fall behind by %s", p.Reorder, p.ReorderBy)
	case p.Police < 0 || p.PoliceBurst < 0 || (p.Police > 0) != (p.PoliceBurst > 0):
		return fmt.Errorf("wan: a policer of %g bit/s with a burst of %d bytes", p.Police, p.PoliceBurst)
	case p.Queue < 0:
		return fmt.Errorf("wan: a queue of %s", p.Queue)
	}
	return nil
}
