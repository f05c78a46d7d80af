package relay

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

const (
	// adoptWait is how long a server may be silent when asked about an earlier allocation: before
	// its first answer, which requests credentials, and again after it. Some never answer a refresh
	// of an unknown allocation.
	adoptWait = time.Second
	// grantAgain is how often a grant's new expiry is reported. The stored expiry is at most that
	// much too early.
	grantAgain = 5 * time.Minute
)

// ErrKeep, as the cause of the end of [Client.Run]'s context, leaves an allocation over UDP at the
// server for the next process to adopt.
var ErrKeep = errors.New("the allocation is kept at the server")

// Grant is what a later process needs to adopt an allocation. The server identifies it by the
// address and port that the gateway's packets come from, so the gateway's port must be the same,
// and its NAT must still map it to the same address. Only allocations over UDP can be adopted: one
// over TCP or TLS ends with its connection (RFC 8656 §3.1).
type Grant struct {
	// Server and Username are as configured, Address is the server's address at the time.
	Server, Username string
	Address          netip.AddrPort
	// Relayed and Mapped are as in [Allocation].
	Relayed, Mapped netip.AddrPort
	// Expires is when the server drops it, by our own clock, unless it was refreshed since the last
	// report: up to 5 minutes later.
	Expires time.Time
}

// fits reports whether the grant may be there still, at this server.
func (g *Grant) fits(s Server, to netip.AddrPort, now time.Time) bool {
	return g != nil && g.Server == s.Address && g.Username == s.Username && g.Address == to &&
		g.Relayed.IsValid() && g.Mapped.IsValid() && now.Before(g.Expires.Add(grantAgain))
}

// adopted is the result of asking for an earlier allocation.
type adopted uint8

const (
	unheard adopted = iota // no answer, or only half of one: it may still exist
	refused                // it is gone, or another client's
	isOurs
)

// adopt asks whether the server still has an earlier allocation, and refreshes it. The server only
// confirms that there is one from our address and port; that it is the same one follows from the
// address at which the server sees us.
func (l *link) adopt(ctx context.Context, g *Grant) adopted {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(adoptWait, func() { cancel(errNoAnswer) })
	defer limit.Stop()
	select {
	case <-l.heard: // the server is there; only an exchange has a limit
		limit.Stop()
	default:
	}
	var refreshed, seen message
	var refreshErr, seenErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		refreshed, _, refreshErr = l.exchange(ctx, methodRefresh, func(b []byte, _ txID) []byte { return addLifetime(b, requestLifetime) })
	})
	wg.Go(func() { seen, _, seenErr = l.exchange(ctx, methodBinding, nil) })
	wg.Go(func() {
		select {
		case <-l.heard:
			if limit.Stop() {
				limit.Reset(adoptWait)
			}
		case <-ctx.Done():
		}
	})
	wg.Wait()
	switch {
	case refreshErr == nil && (refreshed.class != classSuccess || refreshed.lifetime < minLifetime || l.isOpen()):
		return refused
	case seenErr == nil && (seen.class != classSuccess || seen.mapped != g.Mapped):
		return refused
	case refreshErr != nil || seenErr != nil:
		return unheard
	}
	l.mu.Lock()
	l.allocated = message{relayed: g.Relayed, mapped: g.Mapped, lifetime: refreshed.lifetime}
	l.mu.Unlock()
	return isOurs
}

// adopt makes the earlier allocation the current one, if it still exists. If there cannot be one,
// the result is refused.
func (c *Client) adopt(ctx context.Context, l *link) adopted {
	if l.transport != TransportUDP {
		return refused
	}
	c.mu.Lock()
	g := c.previous
	c.mu.Unlock()
	if !g.fits(c.o.Server, l.server.addr, time.Now()) {
		return refused
	}
	outcome := l.adopt(ctx, g)
	if outcome == refused {
		c.mu.Lock()
		c.previous = nil
		c.mu.Unlock()
	}
	return outcome
}

// granted records until when the current allocation lasts, for the next process and for us: it may
// survive an outage.
func (c *Client) granted(a *allocation, until time.Time) {
	if a.Transport != TransportUDP {
		return
	}
	g := Grant{
		Server: c.o.Server.Address, Username: c.o.Server.Username, Address: a.link.server.addr,
		Relayed: a.Relayed, Mapped: a.Mapped, Expires: until,
	}
	c.mu.Lock()
	c.previous = &g
	news := c.reported.Relayed != g.Relayed || c.reported.Mapped != g.Mapped || c.reported.Address != g.Address || until.Sub(c.reported.Expires) >= grantAgain
	if news {
		c.reported = g
	}
	c.mu.Unlock()
	if news {
		c.o.OnGrant(g)
	}
}
