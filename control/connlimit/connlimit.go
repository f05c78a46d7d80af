// Package connlimit bounds the connections of a listener so that those of some clients do not keep
// others out.
package connlimit

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Options configure a listener.
type Options[K comparable] struct {
	// Of identifies the client of a connection.
	Of func(net.Conn) K
	// Each is how many connections a client may have open; further ones are closed. Total is how
	// many there may be in all; 0 is no bound. One more closes the oldest one of the client with
	// most. If several have as many, it closes the oldest of theirs: nobody keeps others out by
	// having many addresses and being first.
	Each, Total int
	// Refused is called for a connection that is closed because its client has too many. It may be
	// nil.
	Refused func(K)
}

// Listen bounds the connections of a listener.
func Listen[K comparable](ln net.Listener, o Options[K]) net.Listener {
	return &listener[K]{Listener: ln, o: o, open: map[K][]*Conn{}}
}

// Address identifies clients by their IP address.
func Address(c net.Conn) netip.Addr {
	a, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // all that have none are one client
	return a.Addr().Unmap()
}

type listener[K comparable] struct {
	net.Listener
	o Options[K]

	mu    sync.Mutex
	open  map[K][]*Conn // the oldest first
	total int
	last  uint64 // number of the last one
}

// Conn is an accepted connection.
type Conn struct {
	net.Conn
	number uint64
	leave  func() // gives its place back
}

// NetConn returns the connection of the listener that is bounded.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection.
func (c *Conn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// CloseWrite ends what is sent, if the connection can: http.Server does so before it closes, so that
// a client which still sends gets the answer instead of a reset.
func (c *Conn) CloseWrite() error {
	if half, can := c.Conn.(interface{ CloseWrite() error }); can {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Accept returns the next connection that has a place.
func (l *listener[K]) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := l.o.Of(raw)
		c := &Conn{Conn: raw}
		c.leave = func() { l.leave(who, c) }
		out := l.enter(who, c)
		if out != nil {
			_ = out.Conn.Close()
		}
		if out != c {
			return c, nil
		}
		if l.o.Refused != nil {
			l.o.Refused(who)
		}
	}
}

// enter takes a place, and returns the connection that has to be closed for it, possibly c itself;
// nil if there is room.
func (l *listener[K]) enter(who K, c *Conn) (out *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open[who]) >= l.o.Each {
		return c
	}
	l.open[who] = append(l.open[who], c)
	l.total++
	l.last++
	c.number = l.last
	if l.o.Total == 0 || l.total <= l.o.Total {
		return nil
	}
	most := who
	for k, list := range l.open {
		if n := cmp.Compare(len(list), len(l.open[most])); n > 0 || n == 0 && list[0].number < l.open[most][0].number {
			most = k
		}
	}
	out = l.open[most][0]
	l.leaveLocked(most, out)
	return out
}

func (l *listener[K]) leave(who K, c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(who, c)
}

// leaveLocked gives a place back, if the connection still has one.
func (l *listener[K]) leaveLocked(who K, c *Conn) {
	i := slices.Index(l.open[who], c)
	if i < 0 {
		return
	}
	l.total--
	if l.open[who] = slices.Delete(l.open[who], i, i+1); len(l.open[who]) == 0 {
		delete(l.open, who)
	}
}
