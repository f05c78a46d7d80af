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

// Incoming is a connection request: a SYN that has not been answered. Exactly one of Accept, Refuse
// and Drop decides it; later calls do nothing ([ErrDecided] from Accept). Until then the peer's
// repeated SYNs are ignored.
type Incoming struct {
	stack         *Stack
	req           *tcp.ForwarderRequest
	id            stack.TransportEndpointID
	remote, local netip.AddrPort

	mu      sync.Mutex
	decided bool
}

// onRequest is gVisor's callback for a SYN that no listener takes, on its own goroutine.
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

// Remote returns the address of the requester.
func (in *Incoming) Remote() netip.AddrPort { return in.remote }

// Local returns the requested address and port.
func (in *Incoming) Local() netip.AddrPort { return in.local }

// decide reports whether the caller is the first to decide.
func (in *Incoming) decide() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	first := !in.decided
	in.decided = true
	return first
}

// complete ends the request in gVisor's forwarder and in our own accounting, in this order: a SYN
// that arrives between the two is ignored, and the peer repeats it.
func (in *Incoming) complete(reset bool) {
	in.req.Complete(reset)
	in.stack.pending.remove(in.id)
}

// Refuse sends a reset: the peer's dial fails with ECONNREFUSED at once.
func (in *Incoming) Refuse() {
	if in.decide() {
		in.complete(true)
	}
}

// Drop sends nothing. The peer's next SYN, a second or more later, is a new request.
func (in *Incoming) Drop() {
	if in.decide() {
		in.complete(false)
	}
}

// Accept completes the handshake and returns the connection. It fails if ctx ends first, the peer
// gives up, the stack closes or the peer's share of the TCP memory is used up (ENOBUFS). The peer
// then gets a reset, at the latest when it next sends something.
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

// handshake sends the SYN-ACK and waits for the outcome. gVisor's call cannot be cancelled, so it
// runs in a goroutine until the endpoint is abandoned, which is retried until there is an endpoint.
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
		if err == nil { // established at the last moment
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

// abandon ends the handshake in progress, if there is one already. Notifying the waiter would end
// gVisor's wait, too, but gVisor then forgets the handshake before it closes the endpoint, and
// dereferences it if a segment comes in between. So the endpoint has to fail first.
func (in *Incoming) abandon() {
	ep, ok := in.stack.gv.FindTransportEndpoint(protocolOf(in.remote.Addr()), tcp.ProtocolNumber, in.id, nicID).(*tcp.Endpoint)
	if !ok || tcp.EndpointState(ep.State()) != tcp.StateSynRecv {
		return
	}
	_ = ep.Shutdown(tcpip.ShutdownRead | tcpip.ShutdownWrite) // its error is how the handshake ends
}
