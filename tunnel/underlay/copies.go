package underlay

import (
	"bytes"
	"hash/maphash"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
)

const (
	// copyLifetime is how long the device may take to work on a handshake message: a
	// millisecond, more on a busy machine. A copy that comes later is refused by the device
	// itself, as a replay; or it is welcome, since the first came within the 20 ms in which
	// the device takes no two initiations of one peer.
	copyLifetime = 30 * time.Millisecond
	// copiesKept bounds the messages that are remembered: as many as admission ever lets pass
	// in a copyLifetime.
	copiesKept = 256
)

// copies keeps the device from working on two copies of one handshake message at once. It
// verifies messages on as many goroutines as there are processors, and looks whether one is
// a replay before it notes that it has taken it (ConsumeMessageInitiation and
// ConsumeMessageResponse of wireguard-go). So it may take both: of an initiation it makes
// two sessions then, and the peer may choose the one that was given up; of a response two
// with the same keys, whose counters both begin at 0. Copies come at the same moment
// whenever two paths are equally long: through one relay, say, to both of a peer's addresses.
type copies struct {
	seed maphash.Seed

	mu    sync.Mutex
	given [copiesKept]givenMessage // ring
	next  int
}

// givenMessage is a handshake message that the device was given; zero for none.
type givenMessage struct {
	sum uint64
	at  time.Time
}

func (c *copies) init() { c.seed = maphash.MakeSeed() }

// has reports whether the device may be working on the same message.
func (c *copies) has(m []byte, now time.Time) bool {
	sum := c.sum(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findLocked(sum, now) != nil
}

// claim notes that the device is given a message now, and reports whether it may: it may
// not while it works on the same.
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

// disclaim takes a claim back: the device was not given the message after all.
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

// authenticated is what the handshake itself protects of an initiation or a response: all
// but the type, the sender's index, and both MACs, which anybody could make again.
func authenticated(m []byte) []byte { return m[8 : len(m)-2*macSize] }

// inTurn reports whether the device shall be given an admitted message now. An initiation
// that may have crossed one of ours waits; of a copy only its path is noted.
func (b *Bind) inTurn(m []byte, from conn.Endpoint, now time.Time) bool {
	switch {
	case m[0] == typeCookieReply:
		return true
	case b.copies.has(m, now):
	case m[0] == typeInitiation && b.waits(m, from):
		return false
	case b.copies.claim(m, now):
		return true
	}
	b.dropCopy(m, from)
	return false
}

// waits hands an initiation to whoever decides on handshakes, if it came over a path that works
// of a peer to whom one of ours is on its way.
func (b *Bind) waits(m []byte, from conn.Endpoint) bool {
	f := b.handshakes.crossed(pathOf(from))
	return f != nil && b.events.add(handshake.Event{Kind: handshake.Arrived, Peer: f.id, Initiation: handshake.Initiation{Message: bytes.Clone(m), From: from}})
}

// dropCopy notes the path of a copy that the device is not given.
func (b *Bind) dropCopy(m []byte, from conn.Endpoint) {
	b.note(m, from)
	b.counters.copies.Add(1)
}

// crowdedOut counts a handshake message, or data, for which the relays' queue has no room.
// Another copy of it may still come.
func (b *Bind) crowdedOut(m []byte) {
	if isInitiation(m) || isResponse(m) {
		b.copies.disclaim(m, time.Now())
	}
	b.counters.relayQueue.Add(1)
}
