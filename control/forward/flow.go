package forward

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// flow is one connection through the gateway, from the moment it is requested. It may be ended from
// any goroutine, at any time, even while it is being opened.
type flow struct {
	// Immutable.
	table     *Flows
	direction string
	peer      string
	service   string
	remote    string
	startedAt time.Time
	ctx       context.Context // done when the flow is to end
	cancel    context.CancelFunc
	tally     *tally // nil: not of a use that is counted

	outside end // see loops; whoever opens the flow sets it

	// rx counts the bytes received from the peer, tx those sent to it.
	rx, tx atomic.Uint64

	// Under table.mu.
	halfOpen bool
	share    share      // in which it is counted
	client   netip.Addr // whose flow it is counted as; may be none

	mu       sync.Mutex
	aborted  bool
	conns    []net.Conn // what abort resets
	peerSide Conn       // once both sides are connected
}

// about identifies a flow's peer and service, for connections and for datagrams.
type about struct {
	direction, peer, service string
	remote                   string // ip:port
	upstream                 string // of an inbound flow of datagrams
}

func (f *flow) about() about { return about{f.direction, f.peer, f.service, f.remote, ""} }

// sending is a connection that reports how much of its data is on its way, in bytes, like those of
// the tunnel's network stack.
type sending interface {
	Outstanding() (waiting, inFlight int, ok bool)
}

// attach passes a connection to the flow, which resets it when the flow is ended, or at once if it
// already was. It reports whether the flow is still alive.
func (f *flow) attach(c net.Conn) bool {
	f.mu.Lock()
	dead := f.aborted
	if !dead {
		f.conns = append(f.conns, c)
	}
	f.mu.Unlock()
	if dead {
		abort(c)
	}
	return !dead
}

// abort ends the flow with resets on both sides. Only the first call does anything.
func (f *flow) abort() {
	f.mu.Lock()
	conns := f.conns
	done := f.aborted
	f.aborted, f.conns = true, nil
	f.mu.Unlock()
	if done {
		return
	}
	f.cancel()
	for _, c := range conns {
		abort(c)
	}
}

// finish closes a connection at the end of the flow: with a reset if the flow was aborted, since
// abort may not have reached this connection yet.
func (f *flow) finish(c net.Conn) {
	f.mu.Lock()
	aborted := f.aborted
	f.mu.Unlock()
	if aborted {
		abort(c)
		return
	}
	_ = c.Close()
}

// snapshot returns the flow as shown in the status.
func (f *flow) snapshot() api.Flow {
	out := api.Flow{Direction: f.direction, Protocol: api.TCP, Service: f.service, Remote: f.remote,
		RxBytes: f.rx.Load(), TxBytes: f.tx.Load(), StartedAt: f.startedAt}
	f.mu.Lock()
	c, ok := f.peerSide.(sending)
	f.mu.Unlock()
	if ok {
		out.WaitingBytes, out.InFlightBytes, _ = c.Outstanding()
	}
	return out
}
