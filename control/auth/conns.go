package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// peerConns and totalConns bound open connections: each costs a goroutine and buffers of the
// network stack, even while idle.
const (
	peerConns  = 128
	totalConns = 512
)

// bounds are the limits of one listener's connections.
type bounds struct {
	// conns is how many connections one caller may have open; 0 means the limit for all. whose
	// identifies the caller of an address; those for which it returns the zero prefix share
	// unknownConns.
	conns int
	whose func(netip.Addr) netip.Prefix
	// header is the time for a request's header, including TLS before it.
	header time.Duration
}

// network returns the network of an address, to limit it.
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

// boundedListener limits connections. When there are totalConns, a new one displaces the oldest on
// which no peer has made a request yet, from the caller with most of them. So nobody keeps others
// out by being first, or by having many addresses.
type boundedListener struct {
	net.Listener
	bounds bounds

	mu      sync.Mutex
	total   int
	callers map[netip.Prefix]*share
	// unproven are the connections that can be displaced, oldest first; proven counts the others.
	unproven []*boundedConn
	proven   map[peer.PublicKey]int
}

// share counts one caller's open connections.
type share struct{ open, unproven int }

func newBoundedListener(ln net.Listener, b bounds) *boundedListener {
	return &boundedListener{
		Listener: ln, bounds: b, callers: make(map[netip.Prefix]*share), proven: make(map[peer.PublicKey]int),
	}
}

// Accept waits for a connection within the limits.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: raw, listener: l, from: l.bounds.whose(remoteAddr(raw.RemoteAddr().String()))}
		out := l.admit(c)
		if out != nil {
			out.hangUp()
		}
		if out != c {
			return c, nil
		}
	}
}

// admit counts a connection and returns the one to close for it, if any, possibly c.
func (l *boundedListener) admit(c *boundedConn) *boundedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.bounds.conns
	if !c.from.IsValid() {
		most = unknownConns
	}
	s := l.callers[c.from]
	if s == nil {
		s = &share{}
		l.callers[c.from] = s
	}
	if most > 0 && s.open >= most {
		return c
	}
	l.total++
	s.open++
	s.unproven++
	c.share = s
	l.unproven = append(l.unproven, c)
	if l.total <= totalConns {
		return nil
	}
	out := l.unproven[0]
	for _, o := range l.unproven {
		if o.share.unproven > out.share.unproven {
			out = o
		}
	}
	l.dropLocked(out)
	return out
}

// prove protects a connection from being displaced, unless its peer already has too many of them.
func (l *boundedListener) prove(c *boundedConn, by peer.PublicKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.share == nil || c.proven || l.proven[by] >= peerConns {
		return
	}
	l.forgetUnprovenLocked(c)
	c.proven, c.by = true, by
	l.proven[by]++
}

func (l *boundedListener) drop(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(c)
}

// dropLocked frees a connection's place; the second call does nothing.
func (l *boundedListener) dropLocked(c *boundedConn) {
	if c.share == nil {
		return
	}
	if !c.proven {
		l.forgetUnprovenLocked(c)
	} else if l.proven[c.by]--; l.proven[c.by] == 0 {
		delete(l.proven, c.by)
	}
	l.total--
	if c.share.open--; c.share.open == 0 {
		delete(l.callers, c.from)
	}
	c.share = nil
}

func (l *boundedListener) forgetUnprovenLocked(c *boundedConn) {
	c.share.unproven--
	i := slices.Index(l.unproven, c)
	l.unproven = slices.Delete(l.unproven, i, i+1)
}

type boundedConn struct {
	net.Conn
	listener *boundedListener
	from     netip.Prefix

	// Guarded by the listener's lock. share is nil if the connection is not counted; by is the peer
	// that proved it.
	share  *share
	proven bool
	by     peer.PublicKey
}

// Close also frees the connection's place.
func (c *boundedConn) Close() error {
	c.listener.drop(c)
	return c.Conn.Close()
}

// hangUp closes a connection at once. TLS would first say goodbye, and wait for a peer that does
// not read it.
func (c *boundedConn) hangUp() {
	raw := c.Conn
	if t, ok := raw.(interface{ NetConn() net.Conn }); ok {
		raw = t.NetConn()
	}
	_ = raw.Close()
}

// connKey is the context key of a request's connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// proveConn records that a peer made a request, so that its connection stays.
func proveConn(r *http.Request, by peer.PublicKey) {
	if c, ok := r.Context().Value(connKey{}).(*boundedConn); ok {
		c.listener.prove(c, by)
	}
}

// remoteAddr parses "ip:port" and returns the address, or the zero address.
func remoteAddr(s string) netip.Addr {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
