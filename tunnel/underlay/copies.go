package underlay

import (
	"bytes"
	"hash/maphash"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

const (
	// copyLifetime is how long the device may take, on a busy machine, to work on a handshake
	// message. After it the device itself refuses a copy, as a replay.
	copyLifetime = 100 * time.Millisecond
	// copiesKept bounds the messages that are remembered: more than admission lets pass in a
	// copyLifetime, but for the very first.
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

// givenMessage is a handshake message that the device was given.
type givenMessage struct {
	sum uint64
	at  time.Time
}

func (c *copies) init() { c.seed = maphash.MakeSeed() }

// again reports whether the device may be working on the same message. If not, it is noted
// as given to the device now.
func (c *copies) again(m []byte, now time.Time) bool {
	sum := maphash.Bytes(c.seed, authenticated(m))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.given {
		if g := &c.given[i]; g.sum == sum && now.Sub(g.at) < copyLifetime {
			return true
		}
	}
	c.given[c.next] = givenMessage{sum, now}
	c.next = (c.next + 1) % copiesKept
	return false
}

// authenticated is what the handshake itself protects of an initiation or a response: all
// but the type, the sender's index, and both MACs, which anybody could make anew.
func authenticated(m []byte) []byte { return m[8 : len(m)-2*macSize] }

func sameHandshake(a, b []byte) bool {
	return a[0] == b[0] && bytes.Equal(authenticated(a), authenticated(b))
}

// inTurn reports whether the device shall be given an admitted message now. An initiation
// that may have crossed one of ours is kept for later; of a copy only its path is noted.
func (b *Bind) inTurn(m []byte, from conn.Endpoint, now time.Time) bool {
	switch {
	case m[0] == typeCookieReply:
		return true
	case m[0] == typeInitiation && b.holdBack(m, from, now):
		return false
	case b.copies.again(m, now):
		b.drop(m, from)
		return false
	}
	return true
}

// drop notes the path of a copy that the device is not given.
func (b *Bind) drop(m []byte, from conn.Endpoint) {
	b.counters.copies.Add(1)
	b.note(m, from)
}
