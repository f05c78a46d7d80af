package underlay

import "sync/atomic"

// Counters are totals since the Bind was created.
type Counters struct {
	// Received and Sent count datagrams, including dropped ones.
	Received, Sent uint64
	// STUN counts the messages handed to OnSTUN.
	STUN uint64
	// ReceiveErrors and SendErrors count calls that failed.
	ReceiveErrors, SendErrors uint64
	// AnswersRepeated counts handshake responses sent again to another copy of the initiation.
	AnswersRepeated uint64
	// CookieReplies counts the replies to handshake messages above the limits.
	CookieReplies uint64
	// Server counts the messages that a TURN server's handler took.
	Server uint64
	// Dropped counts datagrams by reason. Every reason is present, even at 0.
	Dropped map[string]uint64
}

// Reasons for drops other than the class and the handshake limits.
const (
	relayQueueReason = "relay-queue"
	copyReason       = "handshake-copy"
)

type counters struct {
	received, sent, stun      atomic.Uint64
	receiveErrors, sendErrors atomic.Uint64
	answersRepeated, cookies  atomic.Uint64
	server                    atomic.Uint64
	// relayQueue counts WireGuard messages that arrived on a relay too fast.
	relayQueue atomic.Uint64
	// copies counts handshake messages that the device may have been processing.
	copies  atomic.Uint64
	dropped [classes]atomic.Uint64
	refused [verdicts]atomic.Uint64
}

// Counters returns the current totals.
func (b *Bind) Counters() Counters {
	c := Counters{
		Received:        b.counters.received.Load(),
		Sent:            b.counters.sent.Load(),
		STUN:            b.counters.stun.Load(),
		ReceiveErrors:   b.counters.receiveErrors.Load(),
		SendErrors:      b.counters.sendErrors.Load(),
		AnswersRepeated: b.counters.answersRepeated.Load(),
		CookieReplies:   b.counters.cookies.Load(),
		Server:          b.counters.server.Load(),
		Dropped:         make(map[string]uint64, int(classes)+int(verdicts)),
	}
	c.Dropped[relayQueueReason], c.Dropped[copyReason] = b.counters.relayQueue.Load(), b.counters.copies.Load()
	for v := foreign; v < verdicts; v++ {
		c.Dropped[v.String()] = b.counters.refused[v].Load()
	}
	for class := STUN; class < classes; class++ {
		c.Dropped[class.String()] = b.counters.dropped[class].Load()
	}
	return c
}
