// Package plane opens the data plane of one WireGuard key: the network stack, the WireGuard device
// and the socket.
package plane

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// Plane is the data plane of one WireGuard key: the network stack, the WireGuard device and the
// socket. A gateway has one. A join creates a second, short-lived one, because a WireGuard device
// has exactly one static key.
type Plane struct {
	Stack  *netstack.Stack
	Bind   *underlay.Bind
	Engine *tunnel.Engine
	// MTU is the overlay's, in bytes.
	MTU int
}

// Options configure a plane. The callbacks may be nil.
type Options struct {
	Key         peer.PrivateKey
	Port        uint16
	MTU         int
	NewUnderlay func(underlay.Options) *underlay.Bind
	OnSTUN      func(packet []byte, from peer.Path)
	OnEvent     func(tunnel.Event)
	OnTCP       func(*netstack.Incoming)
	// OnUDP and OnUDPRefused are those of [netstack.Options].
	OnUDP        func(remote, local netip.AddrPort, payload []byte) bool
	OnUDPRefused func(remote, local netip.AddrPort)
	OnTransit    func(src, dst netip.Addr)
	// Owner is that of [netstack.Options] and [tunnel.Options].
	Owner  func(remote netip.Addr) netip.Addr
	Logger *slog.Logger
}

// Open creates the plane without peers. On an error nothing is left open.
func Open(o Options) (*Plane, error) {
	o.MTU = cmp.Or(o.MTU, netstack.DefaultMTU)
	stack, err := netstack.New(netstack.Options{
		Addresses:     []netip.Addr{peer.OverlayAddr(o.Key.Public())},
		MTU:           o.MTU,
		Unmeasured:    netstack.Unmeasured{Peers: peer.OverlayPrefix, MTU: path.UnmeasuredOverlayMTU(o.MTU)},
		OnTCP:         o.OnTCP,
		OnUDP:         o.OnUDP,
		OnUDPRefused:  o.OnUDPRefused,
		OnMisdirected: o.OnTransit,
		Owner:         o.Owner,
		Logger:        o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("start the network stack: %w", err)
	}
	bind := o.NewUnderlay(underlay.Options{Logger: o.Logger, OnSTUN: o.OnSTUN})
	engine, err := tunnel.New(tunnel.Options{
		PrivateKey: o.Key,
		ListenPort: o.Port,
		Device:     stack.Device(),
		Underlay:   bind,
		OnEvent:    o.OnEvent,
		Owner:      o.Owner,
		Logger:     o.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, stack.Close())
	}
	return &Plane{Stack: stack, Bind: bind, Engine: engine, MTU: o.MTU}, nil
}

// PathMTU returns the size in bytes of the largest packet to send over a path. measured is the
// largest that the path was measured to carry; 0 means not measured yet.
func (p *Plane) PathMTU(measured int) int {
	return min(cmp.Or(measured, path.UnmeasuredOverlayMTU(p.MTU)), p.MTU)
}

// Close closes the device first, so that nothing is written to a closed stack.
func (p *Plane) Close() error {
	return errors.Join(p.Engine.Close(), p.Stack.Close())
}
