package discovery

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

const (
	// giveUpAfter ends a transaction. `invite` waits 3 s for candidates.
	giveUpAfter = 3 * time.Second
	// refreshAfter and refreshJitter: a new mapping lives 30 s on Linux and on the shortest-lived
	// cloud NATs. The jitter keeps gateways that started together from querying together.
	refreshAfter  = 25 * time.Second
	refreshJitter = 5 * time.Second
	// retryAfter doubles with each failure up to refreshAfter.
	retryAfter = 2 * time.Second
	// staleAfter drops an unconfirmed mapping: Linux forgets a mapping with answered traffic after
	// 120 s.
	staleAfter = 2 * time.Minute
)

// retransmitAt are the offsets at which a request is sent (RFC 8489 §6.2.1 with an RTO of 300 ms
// and Rc = 4).
func retransmitAt() [4]time.Duration {
	return [4]time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond, 2100 * time.Millisecond}
}

// target is one address of a STUN server. Its transaction:
//
//	idle ──due──▶ asking ──answer──▶ idle, due after refreshAfter
//	                └─error, send error or giveUpAfter──▶ idle, due after retryAfter…
type target struct {
	addr netip.AddrPort

	asking  bool
	tx      stunwire.TxID
	started time.Time
	sent    int
	due     time.Time // of the next step

	settled    bool // has answered or failed once
	failures   int  // in a row
	err        string
	mapped     netip.AddrPort // invalid: never answered, or stale
	other      netip.AddrPort // OTHER-ADDRESS (RFC 5780 §7.4); invalid if it has none
	answeredAt time.Time
	rtt        time.Duration
}

// step does what is due and returns the request to send, or nil.
func (t *target) step(now time.Time, newTx func() stunwire.TxID) (request []byte, timedOut bool) {
	if now.Before(t.due) {
		return nil, false
	}
	if !t.asking {
		t.asking, t.tx, t.started, t.sent = true, newTx(), now, 0
	}
	offsets := retransmitAt()
	if t.sent == len(offsets) {
		return nil, true
	}
	t.sent++
	wait := giveUpAfter
	if t.sent < len(offsets) {
		wait = offsets[t.sent]
	}
	t.due = t.started.Add(wait)
	return stunwire.BindingRequest(t.tx), false
}

// answers reports whether a message from an address answers the outstanding transaction.
func (t *target) answers(m *stunwire.Message, from netip.AddrPort) bool {
	return t.asking && t.addr == from && t.tx == m.TxID
}

// answered records the mapped address of a success response, and the server's other address if it
// sent one.
func (t *target) answered(now time.Time, mapped, other netip.AddrPort, jitter time.Duration) {
	if t.sent == 1 { // otherwise it is unknown which of them was answered (Karn)
		t.rtt = now.Sub(t.started)
	}
	t.asking, t.settled, t.failures, t.err = false, true, 0, ""
	t.mapped, t.other, t.answeredAt = mapped, other, now
	t.due = now.Add(refreshAfter - jitter)
}

// failed ends a transaction without an address.
func (t *target) failed(now time.Time, reason string, jitter time.Duration) {
	wait := min(retryAfter<<min(t.failures, 10), refreshAfter-jitter)
	t.failures++
	t.asking, t.settled, t.err = false, true, reason
	t.due = now.Add(wait)
}

// expire forgets a mapping that is too old. It returns the time at which it will be.
func (t *target) expire(now time.Time) (at time.Time, expired bool) {
	if !t.mapped.IsValid() {
		return time.Time{}, false
	}
	if at = t.answeredAt.Add(staleAfter); now.Before(at) {
		return at, false
	}
	t.mapped = netip.AddrPort{}
	return time.Time{}, true
}

// outstanding is when the unanswered request was first sent; zero if there is none.
func (t *target) outstanding() time.Time {
	if !t.asking {
		return time.Time{}
	}
	return t.started
}

// askNow makes the target due, unless a transaction is running.
func (t *target) askNow(now time.Time) {
	if !t.asking {
		t.due = now
	}
}

// timeoutReason is the error for a server that did not answer.
func timeoutReason() string {
	return fmt.Sprintf("no answer in %v: is UDP to it blocked, or is it no STUN server?", giveUpAfter)
}
