package relay_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// refuse is a dial function that fails as if nobody listened.
func refuse(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// pipes is a listener for connections within the process. simnet has no TCP.
type pipes struct {
	at      netip.AddrPort
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once

	mu   sync.Mutex
	port uint16 // the latest client port
}

func newPipes(at netip.AddrPort) *pipes {
	return &pipes{at: at, waiting: make(chan net.Conn), closed: make(chan struct{}), port: 40000}
}

// Dial connects to the listener, whatever the address.
func (p *pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.mu.Lock()
	p.port++
	client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), p.port)
	p.mu.Unlock()
	near, far := net.Pipe()
	select {
	case p.waiting <- addressed{far, p.at, client}:
		return addressed{near, client, p.at}, nil
	case <-p.closed:
		return refuse(ctx, "", "")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return net.TCPAddrFromAddrPort(p.at) }

// addressed is a pipe with addresses, by which TURN distinguishes clients.
type addressed struct {
	net.Conn
	local, remote netip.AddrPort
}

func (a addressed) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(a.local) }
func (a addressed) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(a.remote) }
