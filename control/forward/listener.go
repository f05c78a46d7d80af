package forward

import (
	"context"
	"net"
	"sync"
)

// Listener is a Handler that passes its connections to a server of the standard library, as an
// argument of http.Server.Serve. The remote address of a connection identifies its peer.
type Listener struct {
	addr  net.Addr
	conns chan net.Conn

	closing sync.Once
	closed  chan struct{}
}

// NewListener returns a Listener with the address addr.
func NewListener(addr net.Addr) *Listener {
	return &Listener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next connection. After Close the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close ends Accept. Accepted connections stay open.
func (l *Listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address given to NewListener.
func (l *Listener) Addr() net.Addr { return l.addr }

// ServeConn passes the connection to Accept and returns once the server has closed it.
func (l *Listener) ServeConn(ctx context.Context, c Conn) {
	h := &handedConn{Conn: c, closed: make(chan struct{})}
	select {
	case l.conns <- h:
	case <-l.closed:
		abort(c)
		return
	case <-ctx.Done():
		return
	}
	// When ctx ends the connection is reset; the server notices that and closes it.
	<-h.closed
}

// handedConn signals when its server is done with it.
type handedConn struct {
	Conn
	once   sync.Once
	closed chan struct{}
}

func (h *handedConn) Close() error {
	err := h.Conn.Close()
	h.once.Do(func() { close(h.closed) })
	return err
}
