package auth

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// peerConns and totalConns bound open connections: each costs a goroutine and
	// buffers of the network stack, also while nothing is asked.
	peerConns  = 128
	totalConns = 512
)

// boundedListener closes connections above the bounds as soon as they are accepted.
type boundedListener struct {
	net.Listener

	mu    sync.Mutex
	open  map[netip.Addr]int
	total int
}

func newBoundedListener(ln net.Listener) *boundedListener {
	return &boundedListener{Listener: ln, open: make(map[netip.Addr]int)}
}

// Accept waits for a connection within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := remoteAddr(c.RemoteAddr().String())
		if l.take(from) {
			return &countedConn{Conn: c, release: func() { l.release(from) }}, nil
		}
		_ = c.Close()
	}
}

func (l *boundedListener) take(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= totalConns || l.open[from] >= peerConns {
		return false
	}
	l.total++
	l.open[from]++
	return true
}

func (l *boundedListener) release(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

type countedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

// Close also gives the connection's place to the next.
func (c *countedConn) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}

// remoteAddr is the address in "ip:port", or the zero address.
func remoteAddr(s string) netip.Addr {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
