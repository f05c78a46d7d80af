package simnet

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"
)

// Options configure an [Internet].
type Options struct {
	// Seed determines all random decisions.
	Seed uint64
	// Trace is how many events are kept; 0 means 4096, a negative value none.
	Trace int
}

const defaultTrace = 4096

// Internet is the whole simulation. It is safe for concurrent use. [Internet.Close] ends it and
// its goroutine.
type Internet struct {
	seed   uint64
	public *Network
	pool   sync.Pool // of *packet
	sched  *scheduler

	mu      sync.Mutex // guards everything below and all networks, links, NATs and hosts
	closed  bool
	names   map[string]bool
	trace   tracer
	lastID  uint64
	dropped map[Reason]uint64
}

// New creates an internet with only its public network.
func New(o Options) *Internet {
	limit := o.Trace
	switch {
	case limit == 0:
		limit = defaultTrace
	case limit < 0:
		limit = 0
	}
	in := &Internet{
		seed:    o.Seed,
		names:   make(map[string]bool),
		trace:   tracer{start: time.Now(), limit: limit},
		dropped: make(map[Reason]uint64),
	}
	in.public = newNetwork(in, "internet", nil)
	in.pool.New = func() any { return new(packet) }
	in.sched = startScheduler(in)
	return in
}

// Public returns the network of public addresses.
func (in *Internet) Public() *Network { return in.public }

// Close closes all sockets, drops what is in flight and waits for the internet's goroutine. It
// may be called twice.
func (in *Internet) Close() {
	in.mu.Lock()
	var conns []*Conn
	if !in.closed {
		in.closed = true
		conns = in.public.allConns()
	}
	in.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	in.sched.stop()
}

// Dropped returns the number of dropped datagrams by reason.
func (in *Internet) Dropped() map[Reason]uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.dropped)
}

// claimLocked reserves a name. Names must be unique, because random decisions and the trace
// depend on them.
func (in *Internet) claimLocked(name string) error {
	if name == "" || in.names[name] {
		return fmt.Errorf("simnet: the name %q is empty or taken", name)
	}
	in.names[name] = true
	return nil
}

func (in *Internet) newPacket() *packet { return in.pool.Get().(*packet) }

func (in *Internet) release(p *packet) {
	p.origin = nil
	in.pool.Put(p)
}

// drop drops a packet.
func (in *Internet) drop(now time.Time, where string, p *packet, reason Reason) {
	in.dropped[reason]++
	in.trace.add(now, Dropped, where, p, reason)
	in.release(p)
}

// refuse drops a packet and sends an ICMP error to its sender.
func (in *Internet) refuse(now time.Time, where string, p *packet, reason Reason, e ICMP) {
	if p.origin != nil {
		e.To = p.sentTo
		p.origin.tell(e)
	}
	in.drop(now, where, p, reason)
}

// hop decrements the TTL; false if the packet was dropped.
func (in *Internet) hop(now time.Time, where string, p *packet, hops uint8) bool {
	if p.ttl <= hops {
		in.refuse(now, where, p, DropTTL, ICMP{Kind: TimeExceeded})
		return false
	}
	p.ttl -= hops
	return true
}

// checkAddrs checks the addresses of a host or NAT and unmaps them.
func checkAddrs(name string, addrs []netip.Addr) ([]netip.Addr, error) {
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%w: %s has none", ErrAddress, name)
	}
	out := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		a = a.Unmap()
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" {
			return nil, fmt.Errorf("%w: %v of %s", ErrAddress, a, name)
		}
		out[i] = a
	}
	return out, nil
}
