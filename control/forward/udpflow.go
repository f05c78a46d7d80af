package forward

import (
	"errors"
	"net/netip"
	"syscall"
	"time"
)

// A UDP flow is what a NAT calls a mapping (RFC 4787 §4): the datagrams between two ends, for as
// long as they continue. Nothing announces its end, so that is inferred from the datagrams.
const (
	// idleAsked ends a flow without further datagrams after an answer: most are one query and one
	// answer, as in DNS. REQ-5 of RFC 4787 requires 2 minutes because others could take the
	// mapping's place; here the next query begins a new flow, to the same service.
	idleAsked = 30 * time.Second
	// idleTalking ends a flow on which the side that began has sent again after an answer: REQ-5's
	// recommendation.
	idleTalking = 5 * time.Minute
	// maxWaiting and maxWaitingBytes bound what waits for a flow to be opened.
	maxWaiting, maxWaitingBytes = 8, 16 << 10
	// maxOwnerWaiting bounds the same for all flows of a peer in a direction, and
	// maxUnadmittedWaiting for those of a client that is not admitted yet, in bytes.
	maxOwnerWaiting, maxUnadmittedWaiting = 1 << 20, 64 << 10
)

// phase is the stage of a flow's conversation.
type phase uint8

const (
	opening  phase = iota // nobody can answer yet
	asked                 // the side that began has spoken
	answered              // the other one has
	talking               // and the first one again
	ended
)

// udpSide is the end of a flow outside the tunnel.
type udpSide interface {
	// send never blocks.
	send(b []byte) error
	close()
}

// udpFlow is the datagrams between two ends.
type udpFlow struct {
	// Immutable.
	table     *udpFlows
	service   string
	upstream  string   // inbound
	in        *Inbound // inbound
	tally     *tally   // nil: not of a use that is counted
	startedAt time.Time

	// Under table.mu.
	outside    end       // see loops
	owner      *udpOwner // changes when a client is admitted, so never for an inbound one
	key        udpKey    // of an outbound one since it is open
	phase      phase
	used       time.Time
	rx, tx     uint64
	prev, next *udpFlow // in one of its owner's lists
	waiting    [][]byte // from the side that began, while opening
	side       udpSide  // of an outbound one from the beginning
}

// forward passes on a datagram from the side that began.
func (f *udpFlow) forward(side udpSide, b []byte) {
	if f.in != nil {
		f.outcome(side.send(b))
	} else {
		f.outcome(f.toPeer(b))
	}
}

func (f *udpFlow) toPeer(b []byte) error {
	return f.table.tunnel.SendUDP(netip.AddrPortFrom(f.table.own, f.key.port), f.key.remote, b)
}

// datagram handles a datagram from the side outside the tunnel.
func (f *udpFlow) datagram(_ netip.AddrPort, b []byte) {
	f.table.mu.Lock()
	side, now := f.table.takes(f, false, b)
	f.table.mu.Unlock()
	if !now {
		return
	}
	f.outcome(f.toPeer(b))
	if c, local := side.(*udpClient); local {
		c.local().unrefused(f)
	}
}

// refused ends a flow that the side outside the tunnel rejects, and notifies the peer.
func (f *udpFlow) refused(netip.AddrPort) {
	f.table.mu.Lock()
	unanswered := f.phase < answered
	f.table.mu.Unlock()
	if !f.end() {
		return
	}
	if f.key.port != 0 {
		f.table.tunnel.RefuseUDP(netip.AddrPortFrom(f.table.own, f.key.port), f.key.remote)
	}
	if f.in != nil && unanswered {
		f.in.upstreamRefused(f)
	}
}

// outcome counts a datagram that was not sent, and ends a flow that nobody accepts.
func (f *udpFlow) outcome(err error) {
	switch {
	case err == nil:
	case errors.Is(err, syscall.EMSGSIZE):
		f.table.dropped[TooLarge].Add(1)
	case errors.Is(err, syscall.ECONNREFUSED):
		f.refused(netip.AddrPort{})
	default:
		f.table.dropped[NoRoom].Add(1)
	}
}

// Dropped says why a datagram was dropped. The values are metric labels.
type Dropped string

// Reasons for dropping a datagram.
const (
	TooLarge Dropped = "too_large" // for the protocol of the side where it was to go
	NoRoom   Dropped = "no_room"   // where it was to go nobody takes them so fast
)

// end removes a flow from the table and closes it. Only the first call does anything.
func (f *udpFlow) end() bool {
	t := f.table
	t.mu.Lock()
	first := f.phase != ended
	var was phase
	if first {
		was = f.phase
		t.endLocked(f)
	}
	side := f.side
	t.mu.Unlock()
	if first {
		f.closed(side, was)
	}
	return first
}

// open reports whether the flow has not ended.
func (f *udpFlow) open() bool {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	return f.phase != ended
}

// takeWaiting returns the datagrams that wait for the flow to be opened, once.
func (f *udpFlow) takeWaiting() [][]byte {
	f.owner.waiting -= f.waitingBytes()
	waiting := f.waiting
	f.waiting = nil
	return waiting
}

func (f *udpFlow) waitingBytes() int {
	n := 0
	for _, b := range f.waiting {
		n += len(b)
	}
	return n
}

// closed does the part of the end that needs no lock.
func (f *udpFlow) closed(side udpSide, was phase) {
	if side != nil {
		side.close()
	}
	if f.in != nil && was != opening {
		f.in.disconnected(f)
	}
}

func (f *udpFlow) about() about {
	if f.in == nil {
		return about{DirectionOutbound, f.side.(*udpClient).local().want.Peer, f.service, f.remote(), f.upstream}
	}
	return about{DirectionInbound, f.owner.peer, f.service, f.remote(), f.upstream}
}

// remote returns who began the flow: the peer's address, or the local client's.
func (f *udpFlow) remote() string {
	if f.in == nil {
		return f.side.(*udpClient).from.String()
	}
	return f.key.remote.String()
}
