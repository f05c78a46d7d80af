package probe

import "github.com/postern-dev/postern/discovery/stunwire"

const (
	// rotateAfter is how many requests use one key id. At one in 20 s that is 21 min.
	rotateAfter = 64
	// fallbackAfter is how many requests in a row go unanswered before every other one
	// uses the initial key id, which a restarted peer knows too.
	fallbackAfter = 3
	// maxPending is how many requests to a peer may wait for their answer. One more
	// makes the oldest void: at 50 ms between requests it has waited for 6 s.
	maxPending = 128
)

// outgoing is the sending side towards one peer.
type outgoing struct {
	initial *keys
	current *keys // of the generation
	// counter numbers the requests. Each peer has its own, or many peers would make the
	// numbers of one jump, and its window short.
	counter uint64
	// generation is what requests state.
	generation uint16
	// known says that the peer accepts the current keys, acknowledged that it has
	// answered a request that stated their generation.
	known, acknowledged bool
	// rotate asks for the next generation as soon as this one is acknowledged.
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

// choose picks the keys for the next request.
func (o *outgoing) choose() *keys {
	fallback := o.unanswered >= fallbackAfter && o.unanswered%2 == 1
	o.sent++
	o.unanswered++
	if !o.known || fallback {
		return o.initial
	}
	return o.current
}

// advance moves to the next generation when it is time and the peer expects it.
func (o *outgoing) advance(s schedule, boot uint64) {
	if !o.acknowledged || !o.rotate && o.sent < rotateAfter {
		return
	}
	o.generation++
	o.current = s.generation(true, boot, o.generation)
	o.acknowledged, o.rotate, o.sent = false, false, 0
}

// answered takes an authenticated answer to a request that stated a generation.
func (o *outgoing) answered(generation uint16) {
	o.unanswered = 0
	if generation == o.generation {
		o.known, o.acknowledged = true, true
	}
}

// forgotten notes that the peer has restarted and knows the initial keys only.
func (o *outgoing) forgotten() { o.known, o.acknowledged = false, false }
