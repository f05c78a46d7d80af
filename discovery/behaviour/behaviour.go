// Package behaviour determines how the NAT in front of a socket maps and filters (RFC 4787 §4.1
// and §5), with one STUN server that has two addresses, as in RFC 5780 §4.
//
// A [Test] is a state machine without socket or clock: packets and the time go in, datagrams and
// the next deadline come out. It queries a server at A1:P1, whose other address is A2:P2, in
// three stages. The requests of a stage are sent at the same time:
//
//	1 basic       A1:P1                                the mapped address, and A2:P2
//	2 filtering   A1:P1, answer from A2:P2, please     it arrives: endpoint-independent
//	              A1:P1, answer from A1:P2, please     it arrives: address-dependent
//	3 mapping     A2:P1                                as before: endpoint-independent
//	              A2:P2                                as A2:P1: address-dependent
//	              A1:P2, if it was not heard in 2      is it there at all?
//
// Filtering comes first, since a NAT lets in packets from addresses that the socket has sent to:
// see [Test.Spoken]. Silence in stage 2 counts only if the same address and port answer in stage
// 3. Stage 3 also shows whether the datagrams that the NAT refused in stage 2 left state behind
// that sends later ones to that address from another port: see [Test.Strays].
//
// A request is sent at 0, 250, 500, 1000, 1500 and 2000 ms and given up after 3 s. With 10 % loss
// each way an answer is missed once in 20,000 times. With a NAT that filters the test takes the
// full 3 s, otherwise a few round trips.
package behaviour

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// Mapping and filtering behaviour, in the terms of RFC 4787 that the status document uses.
const (
	EndpointIndependent     = "endpoint-independent"
	AddressDependent        = "address-dependent"
	AddressAndPortDependent = "address-and-port-dependent"
	// EndpointDependent is one of the latter two, if the server cannot tell which.
	EndpointDependent = "endpoint-dependent"
	Unknown           = "unknown"
)

// Strays says how a NAT reacts to a datagram that it refuses.
type Strays string

// Strays.
const (
	StraysIgnored Strays = "ignored" // nothing
	StraysKept    Strays = "kept"    // later datagrams to its sender leave from another port
	StraysUnknown Strays = "unknown"
)

// Datagram is a request to send from the socket in question.
type Datagram struct {
	To     netip.AddrPort
	Packet []byte
}

// stage is the part of the test in progress.
//
//	basic ──> filtering ──> mapping ──> finished
//	  └─────── no second address ───────────^
type stage uint8

const (
	basic stage = iota
	filtering
	mapping
	finished
)

// Test is one test with one server. It is not safe for concurrent use.
type Test struct {
	newTx         func() stunwire.TxID
	server, other netip.AddrPort // A1:P1, A2:P2
	spoken        []netip.AddrPort
	refuse        func(netip.AddrPort) string // nil = nothing

	stage   stage
	started bool // the stage's exchanges exist

	first        *exchange // with A1:P1
	answerOther  *exchange // with A1:P1, to be answered from A2:P2
	answerPort   *exchange // with A1:P1, to be answered from A1:P2
	otherAddress *exchange // with A2:P1
	otherBoth    *exchange // with A2:P2
	otherPort    *exchange // with A1:P2; nil when not needed

	result result
}

// New returns a test that queries the server. It begins with the first [Test.Poll].
func New(server netip.AddrPort) *Test {
	t := &Test{newTx: stunwire.NewTxID, server: unmap(server)}
	t.result.none("the test is not finished")
	return t
}

// Spoken adds addresses that the socket has sent to within the last minutes, or may send to
// during the test: other STUN servers, and all addresses of the server of an earlier test. A NAT
// may let in packets from there. An answer from there says nothing about filtering, which is then
// unknown.
func (t *Test) Spoken(addrs ...netip.AddrPort) {
	for _, a := range addrs {
		t.spoken = append(t.spoken, unmap(a))
	}
}

// Refuse sets a function that says why nothing may be sent to the server's other address. The
// reason is empty if the address may be used.
func (t *Test) Refuse(why func(netip.AddrPort) (reason string)) { t.refuse = why }

// Poll returns what to send now and the latest time of the next poll; the zero time if the test
// is finished. Call it after each [Test.Handle], too.
func (t *Test) Poll(now time.Time) (send []Datagram, next time.Time) {
	for t.stage != finished {
		if !t.started {
			t.start(now)
			t.started = true
		}
		for _, x := range t.active() {
			if packet := x.step(now); packet != nil {
				send = append(send, Datagram{x.to, packet})
			}
		}
		if next = t.deadline(); !next.IsZero() {
			return send, next
		}
		t.stage, t.started = t.conclude(), false
	}
	return send, time.Time{}
}

// start creates the exchanges of the stage.
func (t *Test) start(now time.Time) {
	a1p2 := netip.AddrPortFrom(t.server.Addr(), t.other.Port())
	a2p1 := netip.AddrPortFrom(t.other.Addr(), t.server.Port())
	switch t.stage {
	case basic:
		t.first = newExchange(now, t.newTx(), t.server, t.server, 0)
	case filtering:
		t.answerOther = newExchange(now, t.newTx(), t.server, t.other, stunwire.ChangeAddress|stunwire.ChangePort)
		t.answerPort = newExchange(now, t.newTx(), t.server, a1p2, stunwire.ChangePort)
	case mapping:
		t.otherAddress = newExchange(now, t.newTx(), a2p1, a2p1, 0)
		t.otherBoth = newExchange(now, t.newTx(), t.other, t.other, 0)
		if t.answerPort.state == silent {
			t.otherPort = newExchange(now, t.newTx(), a1p2, a1p2, 0)
		}
	}
}

// active returns the stage's exchanges that are still pending.
func (t *Test) active() []*exchange {
	var of []*exchange
	switch t.stage {
	case basic:
		of = []*exchange{t.first}
	case filtering:
		of = []*exchange{t.answerOther, t.answerPort}
		if t.answerOther.state == answered || t.answerOther.state == refused { // the other adds nothing
			return nil
		}
	case mapping:
		of = []*exchange{t.otherAddress, t.otherBoth, t.otherPort}
	}
	return slices.DeleteFunc(of, func(x *exchange) bool { return x == nil || x.state != waiting })
}

// deadline returns when an exchange of the stage is due; zero if none is pending.
func (t *Test) deadline() time.Time {
	var next time.Time
	for _, x := range t.active() {
		if next.IsZero() || x.due.Before(next) {
			next = x.due
		}
	}
	return next
}

// conclude ends the stage and returns the next one.
func (t *Test) conclude() stage {
	switch t.stage {
	case basic:
		if t.first.state != answered {
			t.result.none(t.first.why)
			return finished
		}
		t.other = t.first.other
		if why := unusable(t.server, t.other); why != "" {
			t.result.none(why)
			return finished
		}
		if t.refuse != nil {
			if why := t.refuse(t.other); why != "" {
				t.result.none(fmt.Sprintf("the STUN server %v says that its other address is %v, to which nothing is sent: %s", t.server, t.other, why))
				return finished
			}
		}
		return filtering
	case filtering:
		return mapping
	default:
		t.result = t.judge()
		return finished
	}
}

// Handle handles a STUN message that arrived at the socket, and reports whether it answers a
// request of the test.
func (t *Test) Handle(_ time.Time, packet []byte, from netip.AddrPort) bool {
	m, err := stunwire.Parse(packet)
	if err != nil || m.Class != stunwire.Success && m.Class != stunwire.Error {
		return false
	}
	for _, x := range []*exchange{t.first, t.answerOther, t.answerPort, t.otherAddress, t.otherBoth, t.otherPort} {
		if x != nil && x.tx == m.TxID {
			x.handle(m, unmap(from))
			return true
		}
	}
	return false
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
