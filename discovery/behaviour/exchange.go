package behaviour

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// giveUpAfter is how long to wait for an answer, the same as discovery waits for a plain STUN
// server.
const giveUpAfter = 3 * time.Second

// sendAt returns when a request is sent, relative to the first time.
func sendAt() []time.Duration {
	return []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second}
}

// state is the progress of an exchange.
//
//	waiting ──> answered   from where the answer was wanted
//	        ├─> refused    by an error, or an answer from elsewhere
//	        └─> silent     for giveUpAfter
type state uint8

const (
	waiting state = iota
	answered
	refused
	silent
)

// exchange is a request, which is retransmitted, and its answer.
type exchange struct {
	tx     stunwire.TxID
	to     netip.AddrPort
	from   netip.AddrPort // where the answer must come from
	change stunwire.Change
	began  time.Time
	sent   int       // times
	due    time.Time // the next of them, or the end

	state  state
	why    string         // refused or silent
	mapped netip.AddrPort // answered
	other  netip.AddrPort // the other address in the answer
}

func newExchange(now time.Time, tx stunwire.TxID, to, from netip.AddrPort, change stunwire.Change) *exchange {
	return &exchange{tx: tx, to: to, from: from, change: change, began: now, due: now}
}

// step returns the request if it is due, and ends the exchange if its time is over.
func (x *exchange) step(now time.Time) []byte {
	if x.state != waiting || now.Before(x.due) {
		return nil
	}
	at := sendAt()
	if x.sent == len(at) {
		x.state = silent
		x.why = fmt.Sprintf("the STUN server's address %v did not answer within %v", x.to, giveUpAfter)
		return nil
	}
	// A late poll sends once for all times that have passed.
	for x.sent < len(at) && !now.Before(x.began.Add(at[x.sent])) {
		x.sent++
	}
	x.due = x.began.Add(giveUpAfter)
	if x.sent < len(at) {
		x.due = x.began.Add(at[x.sent])
	}
	return x.packet()
}

func (x *exchange) packet() []byte {
	if x.change == 0 {
		return stunwire.BindingRequest(x.tx)
	}
	b, err := stunwire.ChangeRequest(x.tx, x.change)
	if err != nil { // only for changes that do not exist
		return nil
	}
	return b
}

// handle handles a response with the exchange's transaction ID.
func (x *exchange) handle(m *stunwire.Message, from netip.AddrPort) {
	switch {
	case x.state != waiting:
	case m.Class == stunwire.Error && from == x.to:
		// Its text is untrusted and stays out of logs and screens.
		x.state = refused
		x.why = fmt.Sprintf("the STUN server %v answers error %d", x.to, m.Code)
		if x.change != 0 {
			x.why += " to CHANGE-REQUEST"
		}
	case m.Class == stunwire.Error:
	case from == x.from:
		x.state, x.mapped, x.other = answered, m.Mapped, m.Other
	case x.change != 0:
		x.state = refused
		x.why = fmt.Sprintf("the STUN server %v answers from %v when asked to answer from %v", x.to, from, x.from)
	}
}
