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

// backends are the ready backends of a service. It is safe for concurrent use.
type backends struct {
	mu       sync.Mutex
	ready    []backend // by address
	next     int
	affinity mcs.Affinity
	kept     map[client]kept
}

// backend is a ready backend. Its context is made when it is picked first: a service may have thousands
// of backends at each of its ports.
type backend struct {
	netip.AddrPort
	ready context.Context
	end   context.CancelFunc
}

func (x *backend) pick() forward.Backend {
	if x.ready == nil {
		x.ready, x.end = context.WithCancel(context.Background())
	}
	return forward.Backend{AddrPort: x.AddrPort, Ready: x.ready}
}

// client is a peer's clients that use the same port.
type client struct {
	peer string
	nth  int
}

// kept is a client's backend, and when it last connected.
type kept struct {
	to   forward.Backend
	used time.Time
}

// set replaces the backends, sorted by address. When it returns, those that are no longer ready get
// no new connections, not even ones that are being opened.
func (b *backends) set(ready []netip.AddrPort, a mcs.Affinity) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.ready
	leave := func(before func(netip.AddrPort) bool) {
		for ; len(was) > 0 && before(was[0].AddrPort); was = was[1:] {
			if was[0].end != nil {
				was[0].end()
			}
		}
	}
	b.ready, b.affinity = make([]backend, len(ready)), a
	for i, to := range ready {
		leave(func(x netip.AddrPort) bool { return x.Compare(to) < 0 })
		if b.ready[i].AddrPort = to; len(was) > 0 && was[0].AddrPort == to {
			b.ready[i], was = was[0], was[1:]
		}
	}
	leave(func(netip.AddrPort) bool { return true })
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
		if to := &b.ready[b.next%len(b.ready)]; !slices.Contains(tried, to.AddrPort) {
			return to.pick()
		}
	}
	return forward.Backend{}
}

// pickKept returns a client's previous backend. Without one, it returns the same that it would
// after a restart.
func (b *backends) pickKept(c client, tried []netip.AddrPort) forward.Backend {
	now := time.Now()
	k := b.kept[c]
	if !k.to.IsValid() || now.Sub(k.used) >= b.affinity.Timeout || slices.Contains(tried, k.to.AddrPort) {
		var best *backend
		var most uint64
		for i := range b.ready {
			to := &b.ready[i]
			if w := weight(c, to.AddrPort); !slices.Contains(tried, to.AddrPort) && (w > most || best == nil) {
				best, most = to, w
			}
		}
		if best == nil {
			return forward.Backend{}
		}
		k.to = best.pick()
	}
	if b.kept == nil {
		b.kept = map[client]kept{}
	}
	b.kept[c] = kept{k.to, now}
	return k.to
}

// weight orders the backends of a client: it gets the one with the greatest weight (rendezvous
// hashing).
func weight(c client, to netip.AddrPort) uint64 {
	h := fnv.New64a()
	a := to.Addr().As16()
	_, _ = h.Write(a[:])
	_, _ = h.Write([]byte{byte(to.Port()), byte(to.Port() >> 8), byte(c.nth)})
	_, _ = h.Write([]byte(c.peer))
	return mixed(h.Sum64())
}

// mixed mixes the bits of FNV's similar results (finaliser of MurmurHash3).
func mixed(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// nthOf returns the port of a range that a client uses, by its address.
func nthOf(client netip.Addr, ports int) int {
	h := fnv.New64a()
	a := client.As16()
	_, _ = h.Write(a[:])
	return int(mixed(h.Sum64()) % uint64(ports))
}
