package netstack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Incoming is a connection request: a SYN that nothing has answered yet. Exactly one of
// Accept, Refuse and Drop decides it; later ones do nothing ([ErrDecided] from Accept).
// While it is undecided the peer's repeated SYNs are swallowed.
type Incoming struct {
	stack         *Stack
	req           *tcp.ForwarderRequest
	id            stack.TransportEndpointID
	remote, local netip.AddrPort

	mu      sync.Mutex
	decided bool
}

// onRequest is gVisor's callback for a SYN that no listener takes, on a goroutine of its own.
func (s *Stack) onRequest(req *tcp.ForwarderRequest) {
	id := req.ID()
	in := &Incoming{
		stack:  s,
		req:    req,
		id:     id,
		remote: fromFull(tcpip.FullAddress{Addr: id.RemoteAddress, Port: id.RemotePort}),
		local:  fromFull(tcpip.FullAddress{Addr: id.LocalAddress, Port: id.LocalPort}),
	}
	defer in.Refuse()
	if !s.begin() {
		return
	}
	defer s.calls.Done()
	s.pending.started(id, in)
	if s.opts.OnTCP != nil {
		s.opts.OnTCP(in)
	}
}

// Remote is who asks.
func (in *Incoming) Remote() netip.AddrPort { return in.remote }

// Local is the address and port asked for.
func (in *Incoming) Local() netip.AddrPort { return in.local }

// decide reports whether the caller is the first to decide.
func (in *Incoming) decide() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	first := !in.decided
	in.decided = true
	return first
}

// complete ends the request in gVisor's forwarder and in our own account, in this order: a
// SYN that comes between is swallowed, and repeated by the peer.
func (in *Incoming) complete(reset bool) {
	in.req.Complete(reset)
	in.stack.pending.remove(in.id)
}

// Refuse answers with a reset: the peer's dial fails with ECONNREFUSED at once.
func (in *Incoming) Refuse() {
	if in.decide() {
		in.complete(true)
	}
}

// Drop answers nothing. The peer's next SYN, a second or more later, is a new request.
func (in *Incoming) Drop() {
	if in.decide() {
		in.complete(false)
	}
}

// Accept completes the handshake and returns the connection. It fails if ctx ends first,
// if the peer gives up, if the stack closes or if the peer's share of the TCP memory is
// used up (ENOBUFS); the peer gets a reset then, or when it next
// sends something.
func (in *Incoming) Accept(ctx context.Context) (*Conn, error) {
	if !in.decide() {
		return nil, ErrDecided
	}
	s := in.stack
	if !s.begin() {
		in.complete(true)
		return nil, fmt.Errorf("netstack: accept %v: %w", in.remote, net.ErrClosed)
	}
	defer s.calls.Done()
	if err := ctx.Err(); err != nil {
		in.complete(true)
		return nil, fmt.Errorf("netstack: accept %v: %w", in.remote, err)
	}
	share, err := s.memory.open(in.remote.Addr())
	if err != nil {
		s.drops.add(DropMemory)
		in.complete(true)
		return nil, fmt.Errorf("netstack: accept %v: %w", in.remote, err)
	}
	ep, wq, err := in.handshake(ctx)
	if err != nil {
		share.close()
		return nil, fmt.Errorf("netstack: accept %v: %w", in.remote, err)
	}
	return s.newConn(ep, wq, share), nil
}

// handshake sends the SYN-ACK and waits for the outcome. gVisor's call cannot be
// cancelled, so it runs beside until the endpoint is abandoned, which is tried until there
// is one.
func (in *Incoming) handshake(ctx context.Context) (tcpip.Endpoint, *waiter.Queue, error) {
	var (
		wq   waiter.Queue
		ep   tcpip.Endpoint
		err  tcpip.Error
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		ep, err = in.req.CreateEndpoint(&wq)
		in.complete(err != nil)
	}()
	var cause error
	select {
	case <-done:
	case <-ctx.Done():
		cause = ctx.Err()
	case <-in.stack.done:
		cause = net.ErrClosed
	}
	if cause != nil {
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for ended := false; !ended; {
			in.abandon()
			select {
			case <-done:
				ended = true
			case <-again.C:
			}
		}
		if err == nil { // Established in the last moment.
			ep.Abort()
			ep.Close()
		}
		return nil, nil, cause
	}
	if err != nil {
		return nil, nil, sysError(err)
	}
	return ep, &wq, nil
}

// abandon ends the handshake that is under way, if there is one already. To notify the
// waiter would end gVisor's wait as well, but it then forgets the handshake before it
// closes the endpoint, and dereferences what it forgot when a segment comes in between. So
// the endpoint has to fail first.
func (in *Incoming) abandon() {
	ep, ok := in.stack.gv.FindTransportEndpoint(protocolOf(in.remote.Addr()), tcp.ProtocolNumber, in.id, nicID).(*tcp.Endpoint)
	if !ok || tcp.EndpointState(ep.State()) != tcp.StateSynRecv {
		return
	}
	_ = ep.Shutdown(tcpip.ShutdownRead | tcpip.ShutdownWrite) // What it fails with is how the handshake ends.
}
