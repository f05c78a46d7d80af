package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// servicePort is the overlay TCP port that receives the load.
const servicePort = 5201

// viaKeepalive is the ends' keepalive if a forwarder is between them.
const viaKeepalive = 25 * time.Second

// loopback is the underlay address of ends and relays.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// end is the data path of one gateway.
type end struct {
	key    peer.PrivateKey
	stack  *netstack.Stack
	bind   *underlay.Bind
	engine *tunnel.Engine
}

// hooks are an end's callbacks; each may be nil.
type hooks struct {
	onSTUN  func(packet []byte, from peer.Path)
	onEvent func(tunnel.Event)
}

// sizes are sizes in bytes; 0 means the default. mtu is the overlay's, most the maximum receive
// buffer of an underlay socket, send the send buffer.
type sizes struct{ mtu, most, send int }

// newEnd starts an end on a free UDP port, without peers.
func newEnd(key peer.PrivateKey, s sizes, h hooks) (*end, error) {
	e := &end{key: key, bind: underlay.New(underlay.Options{
		OnSTUN: h.onSTUN, MaxPerSocket: s.most, SendBuffer: s.send,
	})}
	_ = tunnel.UseSmallPages() // as gateways do, which also run without it
	var err error
	if e.stack, err = netstack.New(netstack.Options{Addresses: []netip.Addr{e.addr()}, MTU: s.mtu}); err != nil {
		return nil, err
	}
	e.engine, err = tunnel.New(tunnel.Options{
		PrivateKey: key, Device: e.stack.Device(), Underlay: e.bind, OnEvent: h.onEvent,
	})
	if err != nil {
		return nil, errors.Join(err, e.stack.Close())
	}
	return e, nil
}

// newEnds starts two ends without hooks.
func newEnds(s sizes) (dialling, serving *end, err error) {
	var ends [2]*end
	for i := range ends {
		key, err := peer.NewPrivateKey()
		if err == nil {
			ends[i], err = newEnd(key, s, hooks{})
		}
		if err != nil {
			if i > 0 {
				err = errors.Join(err, ends[0].close())
			}
			return nil, nil, fmt.Errorf("start end %d: %w", i+1, err)
		}
	}
	return ends[0], ends[1], nil
}

// addr returns the overlay address.
func (e *end) addr() netip.Addr { return peer.OverlayAddr(e.key.Public()) }

// at returns the underlay address.
func (e *end) at() netip.AddrPort { return netip.AddrPortFrom(loopback, e.bind.Port()) }

// manage makes other the only peer, with paths set by SetPaths.
func (e *end) manage(other *end) error {
	return e.setPeer(peer.Config{PublicKey: other.key.Public(), Managed: true})
}

func (e *end) setPeer(c peer.Config) error {
	c.Name = "other"
	if err := e.engine.SetPeers([]peer.Config{c}); err != nil {
		return fmt.Errorf("set peer: %w", err)
	}
	return nil
}

func (e *end) close() error { return errors.Join(e.engine.Close(), e.stack.Close()) }

// newPostern connects the data paths of two gateways over the loopback interface, with the
// options of gateways: a dials, b serves. If spec.Via is set, they reach each other through the
// forwarder there.
func newPostern(_ context.Context, spec load.Spec) (load.Ends, error) {
	return connectPostern(spec, sizes{mtu: spec.MTU})
}

// grantedBuffer is the largest socket buffer, in bytes, that Linux grants without privileges by
// default: net.core.rmem_max and wmem_max of a 64-bit kernel with 4 KiB pages (SK_RMEM_MAX,
// include/net/sock.h).
const grantedBuffer = 212_992

// newUnprivileged is newPostern with the socket buffers that are available without NET_ADMIN.
// Gateways use NET_ADMIN to get larger ones.
func newUnprivileged(_ context.Context, spec load.Spec) (load.Ends, error) {
	return connectPostern(spec, sizes{mtu: spec.MTU, most: grantedBuffer, send: grantedBuffer})
}

// connectPostern connects two ends directly, or through the forwarder at spec.Via.
func connectPostern(spec load.Spec, s sizes) (load.Ends, error) {
	var via []netip.AddrPort
	if spec.Via != "" {
		at, err := netip.ParseAddrPort(spec.Via)
		if err != nil {
			return load.Ends{}, fmt.Errorf("forwarder's address: %w", err)
		}
		via = append(via, at)
	}
	a, b, err := newEnds(s)
	if err != nil {
		return load.Ends{}, err
	}
	closeBoth := func() error { return errors.Join(a.close(), b.close()) }
	toA, toB := peer.Config{PublicKey: a.key.Public()}, peer.Config{PublicKey: b.key.Public(), Endpoints: []netip.AddrPort{b.at()}}
	if via != nil {
		toA.Endpoints, toB.Endpoints = via, via
		// The forwarder learns the ends from their first packets, so both must speak at once.
		toA.Keepalive, toB.Keepalive = viaKeepalive, viaKeepalive
	}
	if err := errors.Join(a.setPeer(toB), b.setPeer(toA)); err != nil {
		return load.Ends{}, errors.Join(err, closeBoth())
	}
	return service(a, b, closeBoth)
}

// service listens at b and dials from a. On an error it closes both ends.
func service(a, b *end, closeBoth func() error) (load.Ends, error) {
	at := netip.AddrPortFrom(b.addr(), servicePort)
	listener, err := b.stack.Listen(at)
	if err != nil {
		return load.Ends{}, errors.Join(err, closeBoth())
	}
	return load.Ends{
		Listener:     listener,
		Dial:         func(ctx context.Context) (net.Conn, error) { return a.stack.DialTCP(ctx, at) },
		ListenPacket: func() (net.PacketConn, error) { return b.stack.ListenPacket(at) },
		DialPacket: func(ctx context.Context) (net.Conn, error) {
			return a.stack.DialContext(ctx, "udp", at.String())
		},
		Close: closeBoth,
	}, nil
}
