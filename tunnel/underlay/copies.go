package underlay

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// copyLifetime is how long the device may take to process a handshake message: a millisecond,
	// more on a busy machine. The device itself rejects a later copy as a replay. Or the copy is
	// welcome, since the first fell within the 20 ms in which the device takes no second initiation
	// of a peer.
	copyLifetime = 30 * time.Millisecond
	// copiesKept bounds the stored messages: as many as admission ever lets through in a
	// copyLifetime.
	copiesKept = 256
)

// copies keeps the device from processing two copies of one handshake message at once. The device
// verifies messages on as many goroutines as there are processors, and checks for a replay before
// it records the message (ConsumeMessageInitiation and ConsumeMessageResponse of wireguard-go). So
// it may accept both. From an initiation it then makes two sessions, and the peer may choose the
// discarded one; from a response, two sessions with the same keys, whose counters both begin at 0.
// Copies arrive at the same moment when two paths are equally long, for example through one relay
// to both of a peer's addresses.
type copies struct {
	seed maphash.Seed

	mu    sync.Mutex
	given [copiesKept]givenMessage // ring
	next  int
}

// givenMessage is a handshake message that the device was given; zero if none.
type givenMessage struct {
	sum uint64
	at  time.Time
}

func (c *copies) init() { c.seed = maphash.MakeSeed() }

// has reports whether the device may be processing the same message.
func (c *copies) has(m []byte, now time.Time) bool {
	sum := c.sum(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findLocked(sum, now) != nil
}

// claim notes that the device is given a message now, and reports whether it may be: not while the
// device processes the same one.
func (c *copies) claim(m []byte, now time.Time) bool {
	sum := c.sum(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.findLocked(sum, now) != nil {
		return false
	}
	c.given[c.next] = givenMessage{sum, now}
	c.next = (c.next + 1) % copiesKept
	return true
}

// disclaim undoes claim if the device was not given the message after all.
func (c *copies) disclaim(m []byte, now time.Time) {
	sum := c.sum(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.findLocked(sum, now); g != nil {
		*g = givenMessage{}
	}
}

func (c *copies) sum(m []byte) uint64 { return maphash.Bytes(c.seed, authenticated(m)) }

func (c *copies) findLocked(sum uint64, now time.Time) *givenMessage {
	for i := range c.given {
		if g := &c.given[i]; g.sum == sum && now.Sub(g.at) < copyLifetime {
			return g
		}
	}
	return nil
}

// authenticated is the part of an initiation or response that the handshake itself protects: all
// but the type, the sender's index and both MACs, which anyone could recompute.
func authenticated(m []byte) []byte { return m[8 : len(m)-2*macSize] }
