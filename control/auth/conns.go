package auth

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// peerConns and totalConns bound open connections: each costs a goroutine and
	// buffers of the network stack, also while nothing is asked.
	peerConns  = 128
	totalConns = 512
	// outsideConns is for one address outside the tunnel, which may be that of a node or of an
	// Ingress with everybody behind it. Others have the rest.
	outsideConns = totalConns - peerConns
)

// bounds are those of one listener's connections.
type bounds struct {
	// conns are open at a time from one network, which ipv6 bits of an address tell.
	conns, ipv6 int
	// header is how long a request's header may take, and TLS before it.
	header time.Duration
}

// network is whose an address is, to bound it.
func network(a netip.Addr, ipv6 int) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = ipv6
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// boundedListener closes connections above the bounds as soon as they are accepted.
type boundedListener struct {
	net.Listener
	bounds bounds

	mu    sync.Mutex
	open  map[netip.Prefix]int
	total int
}

func newBoundedListener(ln net.Listener, b bounds) *boundedListener {
	return &boundedListener{Listener: ln, bounds: b, open: make(map[netip.Prefix]int)}
}

// Accept waits for a connection within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := network(remoteAddr(c.RemoteAddr().String()), l.bounds.ipv6)
		if l.take(from) {
			return &countedConn{Conn: c, release: func() { l.release(from) }}, nil
		}
		_ = c.Close()
	}
}

func (l *boundedListener) take(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= totalConns || l.open[from] >= l.bounds.conns {
		return false
	}
	l.total++
	l.open[from]++
	return true
}

func (l *boundedListener) release(from netip.Prefix) {
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
