package gateway

import (
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel/underlay"
)

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
