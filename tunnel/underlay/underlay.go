// Package underlay shares a gateway's one UDP socket between WireGuard and STUN.
//
// A [Bind] is a conn.Bind for wireguard-go. There are three kinds, which differ only
// in how datagrams reach the network:
//
//   - [New] on Linux returns our own lean bind: UDP_GRO and one recvmsg for up to 64
//     datagrams, UDP_SEGMENT with an iovec per packet and one sendmsg for up to 64;
//   - [NewStd] wraps wireguard-go's bind, and is what New returns elsewhere;
//   - [NewPacket] runs over any datagram socket, such as an in-process network's.
//
// # Rules
//
// Every received datagram is classified by [Classify]. WireGuard messages go to the
// device, STUN to Options.OnSTUN, TURN to the servers of [Bind.AddServer]; everything else
// is dropped and counted by reason. The bind itself never answers a stranger: a scanner
// sees WireGuard's own silence. Packets from a relay ([Bind.AddRelay]) are treated like
// those from the socket, and answered over the relay.
//
// Errors of single datagrams (port unreachable, message too long, a source address that
// went away) never end a receive loop; only Close does, with net.ErrClosed.
//
// # Candidates
//
// ParseEndpoint understands ip:port, and peer:ID for the paths set by
// [Bind.SetCandidates]: a handshake initiation to such an endpoint is sent on all of them,
// everything else on the first. WireGuard replaces it by the concrete endpoint when the
// first authenticated packet arrives (roaming). The endpoint of a managed peer
// ([Bind.Manage]) stays: data goes on the path of [Bind.SetSelected], and responses to the
// source of the initiation. What the device does with handshake messages shows on which
// path they got through.
//
// When an initiation arrives on several paths, wireguard-go answers only the first copy. If that
// path is open in one direction only, the handshake could never complete, although another path
// works. So the answer is kept for 5 s and repeated to later copies that come from the first
// one's address or on a path of a peer. Other sources get it only if the previous answer was in
// vain.
package underlay

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// defaultSocketBuffer is the size requested for each direction, in bytes: at 4 Gbit/s it holds 8 ms
// of traffic, longer than the receive goroutine ever waits for a CPU.
const defaultSocketBuffer = 4 << 20

// Options configure a Bind.
type Options struct {
	// Logger may be nil.
	Logger *slog.Logger
	// OnSTUN gets every STUN message from the receiving goroutine. It must neither
	// block nor keep the packet. Without it STUN is dropped.
	OnSTUN func(packet []byte, from peer.Path)
	// ReceiveBuffer and SendBuffer are the socket buffer sizes in bytes; 0 means 4 MiB. Without
	// NET_ADMIN the system may grant less (net.core.rmem_max).
	ReceiveBuffer, SendBuffer int
	// MaxPerSocket limits the receive buffer of one socket, in bytes, like rmem_max without
	// NET_ADMIN. It is for measurements. 0 means no limit.
	MaxPerSocket int
}

// network is what the kinds of Bind implement: a conn.Bind over concrete endpoints, which implement
// [addressed].
type network interface {
	conn.Bind
	endpoint(netip.AddrPort) conn.Endpoint
	probe(b []byte, ep conn.Endpoint, o SendOptions) error
}

// addressed is an endpoint with one address.
type addressed interface {
	conn.Endpoint
	Addr() netip.Addr
	Port() uint16
}

// Bind is a UDP socket shared by WireGuard and STUN. It is safe for concurrent use, and can be
// opened again after Close.
type Bind struct {
	log    *slog.Logger
	onSTUN func([]byte, peer.Path)
	inner  network

	port       atomic.Uint32
	counters   counters
	admission  admission
	paths      pathBook
	answers    answers
	handshakes handshakes
	events     events
	copies     copies
	observed   observed
	relays     relays
	servers    servers
	spoken     spoken

	mu         sync.Mutex
	closed     chan struct{}      // non-nil while open
	candidates map[string]*fanOut // by id
}

var _ conn.Bind = (*Bind)(nil)

// NewStd returns a Bind that wraps wireguard-go's own.
func NewStd(o Options) *Bind { return newBind(newStd(), o) }

// NewPacket returns a Bind over the datagram socket that listen opens. The socket must return
// net.ErrClosed once it is closed; port 0 asks for any free port.
func NewPacket(listen func(port uint16) (PacketConn, error), o Options) *Bind {
	return newBind(&packetBind{listen: listen}, o)
}

func newBind(inner network, o Options) *Bind {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Bind{log: o.Logger, onSTUN: o.OnSTUN, inner: inner, candidates: make(map[string]*fanOut)}
	b.admission.init()
	b.paths.all = b.allPaths
	b.handshakes.init()
	b.copies.init()
	b.observed.paths = &b.paths
	if n, ok := inner.(interface {
		onErrors(func(netip.AddrPort, icmpError))
	}); ok {
		n.onErrors(func(to netip.AddrPort, e icmpError) { b.observed.unreachableCame(to, e, time.Now()) })
	}
	b.relays.init()
	b.servers.init()
	b.spoken.init()
	return b
}

// Open binds the port on IPv4 and IPv6; port 0 chooses one that is free on both.
func (b *Bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	fns, port, err := b.inner.Open(port)
	if err != nil {
		return nil, 0, err
	}
	b.closed = make(chan struct{})
	b.port.Store(uint32(port))
	for i, fn := range fns {
		fns[i] = b.filtered(fn, b.closed)
	}
	return append(fns, b.receiveRelayed(b.closed)), port, nil
}

// Close closes the sockets. It does nothing on a closed Bind.
func (b *Bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		return nil
	}
	close(b.closed)
	b.closed = nil
	b.port.Store(0)
	return b.inner.Close()
}

// Port returns the UDP port in use, 0 while closed.
func (b *Bind) Port() uint16 { return uint16(b.port.Load()) }

// BatchSize is the maximum number of datagrams per receive call.
func (b *Bind) BatchSize() int { return b.inner.BatchSize() }

// SetMark sets SO_MARK where the system supports it.
func (b *Bind) SetMark(mark uint32) error { return b.inner.SetMark(mark) }

// ParseEndpoint parses ip:port, "ip:port via RELAY", or peer:ID with an ID known from SetCandidates
// or Manage.
func (b *Bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	if id, ok := strings.CutPrefix(s, candidatesPrefix); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		if f := b.candidates[id]; f != nil {
			return f, nil
		}
		return nil, fmt.Errorf("endpoint %q: no candidates are set for it", s)
	}
	p, err := peer.ParsePath(s)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: want ip:port or %sID", s, candidatesPrefix)
	}
	return b.endpointOf(p), nil
}

// Send sends any number of datagrams to an endpoint of this Bind.
func (b *Bind) Send(bufs [][]byte, ep conn.Endpoint) error {
	if len(bufs) == 1 {
		b.admission.sending(bufs[0])
	}
	var err error
	if f, ok := ep.(*fanOut); ok {
		err = b.sendTo(f, bufs)
	} else {
		err = b.sendDirect(bufs, ep)
		if len(bufs) == 1 && isResponse(bufs[0]) {
			b.observed.initiationAnswered(binary.LittleEndian.Uint32(bufs[0][8:]), pathOf(ep), "") // receiver_index
			b.repeatAnswer(bufs[0], ep, b.known)
			if f := b.roaming(pathOf(ep)); f != nil {
				b.events.add(handshake.Event{Kind: handshake.Responded, Peer: f.id})
			}
		}
	}
	if err != nil {
		b.counters.sendErrors.Add(1)
		return err
	}
	b.counters.sent.Add(uint64(len(bufs)))
	return nil
}

// sendDirect sends datagrams to an endpoint with a single path.
func (b *Bind) sendDirect(bufs [][]byte, ep conn.Endpoint) error {
	if relayed, ok := ep.(*relayEndpoint); ok {
		return b.sendRelayed(bufs, relayed)
	}
	err := b.inner.Send(bufs, ep)
	b.noteSend(ep, err)
	return err
}

// endpointOf returns the endpoint of a path.
func (b *Bind) endpointOf(p peer.Path) conn.Endpoint {
	if p.Via != "" {
		return &relayEndpoint{p}
	}
	if ep := b.spoken.endpoint(p.Remote); ep != nil {
		return ep
	}
	return b.inner.endpoint(p.Remote)
}

// pathOf returns the path of an endpoint, invalid for peer:ID.
func pathOf(ep conn.Endpoint) peer.Path {
	if relayed, ok := ep.(*relayEndpoint); ok {
		return relayed.path
	}
	return peer.Path{Remote: addrOf(ep)}
}

// addrOf returns the address of a concrete endpoint, invalid for any other.
func addrOf(ep conn.Endpoint) netip.AddrPort {
	if e, ok := ep.(addressed); ok {
		return netip.AddrPortFrom(e.Addr().Unmap(), e.Port())
	}
	return netip.AddrPort{}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
