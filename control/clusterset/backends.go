package clusterset

import (
	"context"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
)

// backends are those of a service that are ready. It is safe for concurrent use.
type backends struct {
	mu       sync.Mutex
	ready    []backend // by address
	next     int
	affinity mcs.Affinity
	kept     map[client]kept
}

// backend is one that is ready, until end is called.
type backend struct {
	forward.Backend
	end context.CancelFunc
}

// client is some of a peer's: those that came by one of the ports.
type client struct {
	peer string
	nth  int
}

// kept is the backend of a client, and when it last connected.
type kept struct {
	to   forward.Backend
	used time.Time
}

// set replaces the backends, which are by address. Those that are no longer ready get nothing more
// when it returns, also of what is being opened.
func (b *backends) set(ready []netip.AddrPort, a mcs.Affinity) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := map[netip.AddrPort]backend{}
	for _, x := range b.ready {
		gone[x.AddrPort] = x
	}
	b.ready, b.affinity = make([]backend, len(ready)), a
	for i, to := range ready {
		x, stays := gone[to]
		if delete(gone, to); !stays {
			x.AddrPort = to
			x.Ready, x.end = context.WithCancel(context.Background())
		}
		b.ready[i] = x
	}
	for _, x := range gone {
		x.end()
	}
	if !a.ClientIP {
		b.kept = nil
	}
	now := time.Now()
	maps.DeleteFunc(b.kept, func(_ client, k kept) bool { return k.to.Ready.Err() != nil || now.Sub(k.used) >= a.Timeout })
}

// Pick implements forward.Backends.
func (b *backends) Pick(peer string, nth int, tried []netip.AddrPort) forward.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.affinity.ClientIP {
		return b.pickKept(client{peer, nth}, tried)
	}
	for range b.ready {
		b.next++
		if to := b.ready[b.next%len(b.ready)]; !slices.Contains(tried, to.AddrPort) {
			return to.Backend
		}
	}
	return forward.Backend{}
}

// pickKept gives a client the backend that it had. One that has none gets the same that it would
// get after a restart.
func (b *backends) pickKept(c client, tried []netip.AddrPort) forward.Backend {
	now := time.Now()
	k := b.kept[c]
	if !k.to.IsValid() || now.Sub(k.used) >= b.affinity.Timeout || slices.Contains(tried, k.to.AddrPort) {
		k.to = forward.Backend{}
		var most uint64
		for _, to := range b.ready {
			if w := weight(c, to.AddrPort); !slices.Contains(tried, to.AddrPort) && (w > most || !k.to.IsValid()) {
				k.to, most = to.Backend, w
			}
		}
	}
	if !k.to.IsValid() {
		return k.to
	}
	if b.kept == nil {
		b.kept = map[client]kept{}
	}
	b.kept[c] = kept{k.to, now}
	return k.to
}

// weight orders the backends of a client: the one with the most is its own (rendezvous hashing).
func weight(c client, to netip.AddrPort) uint64 {
	h := fnv.New64a()
	a := to.Addr().As16()
	_, _ = h.Write(a[:])
	_, _ = h.Write([]byte{byte(to.Port()), byte(to.Port() >> 8), byte(c.nth)})
	_, _ = h.Write([]byte(c.peer))
	return mixed(h.Sum64())
}

// mixed spreads what FNV leaves much alike (finaliser of MurmurHash3).
func mixed(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// nthOf is the port of a range that a client has, by its address.
func nthOf(client netip.Addr, ports int) int {
	h := fnv.New64a()
	a := client.As16()
	_, _ = h.Write(a[:])
	return int(mixed(h.Sum64()) % uint64(ports))
}
