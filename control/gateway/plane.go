package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// plane is one WireGuard key's data plane: the network stack, the device over it and
// the socket below. A gateway has one; a join makes a second, short-lived one, since a
// WireGuard device has exactly one static key.
type plane struct {
	stack  *netstack.Stack
	bind   *underlay.Bind
	engine *tunnel.Engine
	// mtu is the overlay's, in bytes.
	mtu int
}

type planeOptions struct {
	key         peer.PrivateKey
	port        uint16
	mtu         int
	newUnderlay func(underlay.Options) *underlay.Bind
	onSTUN      func(packet []byte, from peer.Path)
	onEvent     func(tunnel.Event)
	onTCP       func(*netstack.Incoming)
	onTransit   func(src, dst netip.Addr)
	logger      *slog.Logger
}

// openPlane brings the plane up without peers. On an error nothing is left open.
func openPlane(o planeOptions) (*plane, error) {
	o.mtu = cmp.Or(o.mtu, netstack.DefaultMTU)
	stack, err := netstack.New(netstack.Options{
		Addresses:     []netip.Addr{peer.OverlayAddr(o.key.Public())},
		MTU:           o.mtu,
		Unmeasured:    netstack.Unmeasured{Peers: peer.OverlayPrefix, MTU: path.UnmeasuredOverlayMTU(o.mtu)},
		OnTCP:         o.onTCP,
		OnMisdirected: o.onTransit,
		Logger:        o.logger,
	})
	if err != nil {
		return nil, fmt.Errorf("start the network stack: %w", err)
	}
	bind := o.newUnderlay(underlay.Options{Logger: o.logger, OnSTUN: o.onSTUN})
	engine, err := tunnel.New(tunnel.Options{
		PrivateKey: o.key,
		ListenPort: o.port,
		Device:     stack.Device(),
		Underlay:   bind,
		OnEvent:    o.onEvent,
		Logger:     o.logger,
	})
	if err != nil {
		return nil, errors.Join(err, stack.Close())
	}
	return &plane{stack: stack, bind: bind, engine: engine, mtu: o.mtu}, nil
}

// pathMTU is the largest packet, in bytes, for a path that was measured to take so large ones;
// 0 = it was not measured yet.
func (p *plane) pathMTU(measured int) int {
	return min(cmp.Or(measured, path.UnmeasuredOverlayMTU(p.mtu)), p.mtu)
}

// Close ends the device first, so that nothing is written to a closed stack.
func (p *plane) Close() error {
	return errors.Join(p.engine.Close(), p.stack.Close())
}

// tellOfJumboFrames says what the configuration could have, where the interfaces carry more
// than the overlay takes by itself.
func (g *Gateway) tellOfJumboFrames(cfg *config.Resolved) {
	if link, err := g.opts.LinkMTU(); err == nil && link >= jumboLink && cfg.MTU == 0 {
		g.log.Info("the interfaces carry jumbo frames; spec.mtu has the tunnel use them on paths that carry them, too",
			"linkMtu", link, "mtu", min(link-jumboOverhead, config.MaxMTU)&^3)
	}
}

const (
	// jumboLink is what an interface carries, in bytes, that is far more than Ethernet's 1500.
	jumboLink = 2000
	// jumboOverhead is what IPv6, UDP and WireGuard add to a packet, in bytes.
	jumboOverhead = 40 + 8 + 32
)

// overlayMTU is the configured one or, without that, what the interfaces leave. Paths
// that are narrower further on are found by probes.
func (g *Gateway) overlayMTU(cfg *config.Resolved) int {
	if cfg.MTU != 0 {
		return cfg.MTU
	}
	link, err := g.opts.LinkMTU()
	if err != nil || link == 0 {
		g.log.Debug("the interfaces' MTU is not known", "error", err)
		return netstack.DefaultMTU
	}
	hosts, _ := g.opts.HostAddrs() // without addresses it makes no difference
	v6 := slices.ContainsFunc(hosts, netip.Addr.Is6)
	mtu := underlay.OverlayMTU(link, v6)
	if mtu < netstack.DefaultMTU {
		g.log.Info("the overlay's MTU follows the interfaces'", "linkMtu", link, "mtu", mtu)
	}
	return mtu
}
