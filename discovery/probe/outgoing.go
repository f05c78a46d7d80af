package probe

import "github.com/postern-dev/postern/discovery/stunwire"

const (
	// rotateAfter is how many requests use one key id. With one in 20 s that is 21 min.
	rotateAfter = 64
	// fallbackAfter is how many requests in a row must be unanswered before every other one uses
	// the initial key id, which a restarted peer knows.
	fallbackAfter = 3
	// maxPending is how many requests to a peer may wait for their answer. A further one replaces
	// the oldest, which at 50 ms between requests has waited for 6 s.
	maxPending = 128
)

// outgoing is the sending side for one peer.
type outgoing struct {
	initial *keys
	current *keys // of the generation
	// counter numbers the requests. Each peer has its own counter: with a common one, many peers
	// would make the numbers jump and shorten each peer's window.
	counter uint64
	// generation is the one that requests state.
	generation uint16
	// known is whether the peer accepts the current keys, acknowledged whether it has answered a
	// request that stated their generation.
	known, acknowledged bool
	// rotate requests the next generation as soon as this one is acknowledged.
	rotate     bool
	sent       int // requests of the generation
	unanswered int // requests since the last answer

	pending [maxPending]stunwire.TxID // a ring
	next    int
}

// transaction is a request that may still be answered.
type transaction struct {
	peer       *peerState
	keys       *keys
	generation uint16
	pathID     uint16
	flags      uint8
}

// choose returns the keys for the next request.
func (o *outgoing) choose() *keys {
	fallback := o.unanswered >= fallbackAfter && o.unanswered%2 == 1
	o.sent++
	o.unanswered++
	if !o.known || fallback {
		return o.initial
	}
	return o.current
}

// advance moves to the next generation if it is due and the peer expects it.
func (o *outgoing) advance(s schedule, boot uint64) {
	if !o.acknowledged || !o.rotate && o.sent < rotateAfter {
		return
	}
	o.generation++
	o.current = s.generation(true, boot, o.generation)
	o.acknowledged, o.rotate, o.sent = false, false, 0
}

// answered handles an authenticated answer to a request that stated a generation.
func (o *outgoing) answered(generation uint16) {
	o.unanswered = 0
	if generation == o.generation {
		o.known, o.acknowledged = true, true
	}
}

// forgotten records that the peer has restarted and knows only the initial keys.
func (o *outgoing) forgotten() { o.known, o.acknowledged = false, false }
