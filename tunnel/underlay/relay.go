package underlay

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// relayQueue bounds the datagrams that wait for the device: 1024 × 1452 bytes are 1.5 MB, 12 ms at
// 1 Gbit/s.
const relayQueue = 1024

// relays are the allocations in use, a second way in and out beside the socket.
type relays struct {
	byID  atomic.Pointer[map[string]*relay] // replaced as a whole, under Bind.mu
	queue chan relayed
	bufs  sync.Pool // *[]byte
}

// relay is an allocation on a TURN server. Another package maintains it.
type relay struct {
	id   string
	send func(packets [][]byte, to netip.AddrPort) error
	last atomic.Pointer[relayEndpoint] // shared among datagrams of a flow
}

// relayed is a datagram that arrived on an allocation, or was held back for a while.
type relayed struct {
	buf  *[]byte
	from conn.Endpoint
}

func (r *relays) init() {
	r.byID.Store(&map[string]*relay{})
	r.queue = make(chan relayed, relayQueue)
	r.bufs.New = func() any { return new([]byte) }
}

// AddRelay makes an allocation a way in and out. Paths with its id as Via use send, and a datagram
// passed to deliver is treated as if it had arrived at the socket; it is answered over the relay.
// Ids must not be reused.
//
// Neither side keeps the packets. send is given as many packets to an address as there are, in
// order, and should not block for long, since WireGuard waits for it. Datagrams beyond the queue of
// 1024 are dropped and counted as "relay-queue". After remove, sends fail with ErrNoRelay and
// deliver does nothing.
func (b *Bind) AddRelay(id string, send func(packets [][]byte, to netip.AddrPort) error) (deliver func(packet []byte, from netip.AddrPort), remove func()) {
	r := &relay{id: id, send: send}
	b.mu.Lock()
	b.relays.replace(func(all map[string]*relay) { all[id] = r })
	b.mu.Unlock()
	deliver = func(packet []byte, from netip.AddrPort) { b.deliver(r, packet, from) }
	return deliver, func() { b.removeRelay(r) }
}

func (b *Bind) removeRelay(r *relay) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.relays.get(r.id) != r {
		return
	}
	b.relays.replace(func(all map[string]*relay) { delete(all, r.id) })
	for _, f := range b.candidates {
		f.unlearn(r.id)
	}
}

func (r *relays) get(id string) *relay { return (*r.byID.Load())[id] }

func (r *relays) replace(change func(map[string]*relay)) {
	all := maps.Clone(*r.byID.Load())
	change(all)
	r.byID.Store(&all)
}

// deliver queues a datagram that arrived on an allocation.
func (b *Bind) deliver(r *relay, packet []byte, from netip.AddrPort) {
	if b.relays.get(r.id) != r {
		return
	}
	b.counters.received.Add(1)
	path := peer.Path{Via: r.id, Remote: unmapped(from)}
	class := Classify(packet)
	switch {
	case class == STUN && b.onSTUN != nil:
		b.counters.stun.Add(1)
		b.onSTUN(packet, path)
		return
	case class != WireGuard:
		b.counters.dropped[class].Add(1)
		return
	}
	ep := r.last.Load()
	if ep == nil || ep.path != path {
		ep = &relayEndpoint{path}
		r.last.Store(ep)
	}
	if !b.admits(packet, ep) {
		return
	}
	buf := b.relays.bufs.Get().(*[]byte)
	*buf = append((*buf)[:0], packet...)
	select {
	case b.relays.queue <- relayed{buf, ep}:
	default:
		b.relays.bufs.Put(buf)
		b.crowdedOut(packet)
	}
}

// crowdedOut counts a handshake or data message that the full relay queue dropped. Another copy of
// it may still arrive.
func (b *Bind) crowdedOut(m []byte) {
	if isInitiation(m) || isResponse(m) {
		b.copies.disclaim(m, time.Now())
	}
	b.counters.relayQueue.Add(1)
}

// receiveRelayed returns the conn.ReceiveFunc for the queue that deliver fills.
func (b *Bind) receiveRelayed(closed <-chan struct{}) conn.ReceiveFunc {
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		var d relayed
		select {
		case <-closed:
			return 0, net.ErrClosed
		case d = <-b.relays.queue:
		}
		for n := 0; ; {
			sizes[n], eps[n] = copy(packets[n], *d.buf), d.from
			b.relays.bufs.Put(d.buf)
			b.note(packets[n][:sizes[n]], eps[n])
			if n++; n == len(packets) {
				return n, nil
			}
			select {
			case d = <-b.relays.queue:
			default:
				return n, nil
			}
		}
	}
}

// sendRelayed sends datagrams on an allocation.
func (b *Bind) sendRelayed(bufs [][]byte, to *relayEndpoint) error {
	r := b.relays.get(to.path.Via)
	if r == nil {
		return fmt.Errorf("%s: %w", to.path, ErrNoRelay)
	}
	if err := r.send(bufs, to.path.Remote); err != nil {
		return fmt.Errorf("%s: %w", to.path, err)
	}
	return nil
}

// relayEndpoint is an address beyond a relay. It is immutable.
type relayEndpoint struct{ path peer.Path }

var _ addressed = (*relayEndpoint)(nil)

func (e *relayEndpoint) Addr() netip.Addr    { return e.path.Remote.Addr() }
func (e *relayEndpoint) Port() uint16        { return e.path.Remote.Port() }
func (e *relayEndpoint) ClearSrc()           {}
func (e *relayEndpoint) SrcToString() string { return "" }
func (e *relayEndpoint) SrcIP() netip.Addr   { return netip.Addr{} }
func (e *relayEndpoint) DstToString() string { return e.path.String() }
func (e *relayEndpoint) DstIP() netip.Addr   { return e.path.Remote.Addr() }
func (e *relayEndpoint) DstToBytes() []byte {
	b, _ := e.path.Remote.MarshalBinary() // never fails
	return b
}
