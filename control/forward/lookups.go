package forward

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// lookupKept is how long an answer is reused for other flows: a peer may open thousands a second,
// and everyone shares the cluster's DNS.
const lookupKept = time.Second

// lookups resolves the names of upstreams, each at most once at a time. There are only the names
// that services have. The zero value is ready, and is safe for concurrent use.
type lookups struct {
	mu sync.Mutex
	m  map[string]*lookup
}

// lookup is a lookup of a name, which has ended when done is closed.
type lookup struct {
	done  chan struct{}
	at    time.Time
	addrs []netip.Addr
	err   error
}

// of returns a name's addresses, at least one.
func (l *lookups) of(ctx context.Context, host string) ([]netip.Addr, error) {
	l.mu.Lock()
	x := l.m[host]
	if x == nil || x.ended() && time.Since(x.at) > lookupKept {
		if l.m == nil {
			l.m = make(map[string]*lookup)
		}
		x = &lookup{done: make(chan struct{})}
		l.m[host] = x
		go x.ask(host)
	}
	l.mu.Unlock()
	select {
	case <-x.done:
		return x.addrs, x.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (x *lookup) ask(host string) {
	ctx, cancel := context.WithTimeout(context.Background(), upstreamTimeout)
	defer cancel()
	x.addrs, x.err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	x.at = time.Now()
	close(x.done)
}

func (x *lookup) ended() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}
