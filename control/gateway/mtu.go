package gateway

import (
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// tellOfJumboFrames suggests a larger MTU if the interfaces carry more than the overlay uses by
// default.
func (g *Gateway) tellOfJumboFrames(cfg *config.Resolved) {
	if link, err := g.opts.LinkMTU(); err == nil && link >= jumboLink && cfg.MTU == 0 {
		g.log.Info("interfaces support jumbo frames; set spec.mtu to use them in the tunnel",
			"linkMtu", link, "mtu", min(link-jumboOverhead, config.MaxMTU)&^3)
	}
}

const (
	// jumboLink is an interface MTU, in bytes, far above Ethernet's 1500.
	jumboLink = 2000
	// jumboOverhead is what IPv6, UDP and WireGuard add to a packet, in bytes.
	jumboOverhead = 40 + 8 + 32
)

// overlayMTU returns the configured MTU or, without one, what the interfaces leave. Probes find
// paths that are narrower further on.
func (g *Gateway) overlayMTU(cfg *config.Resolved) int {
	if cfg.MTU != 0 {
		return cfg.MTU
	}
	link, err := g.opts.LinkMTU()
	if err != nil || link == 0 {
		g.log.Debug("interface MTU is unknown", "error", err)
		return netstack.DefaultMTU
	}
	hosts, _ := g.opts.HostAddrs() // without addresses it makes no difference
	v6 := slices.ContainsFunc(hosts, netip.Addr.Is6)
	mtu := underlay.OverlayMTU(link, v6)
	if mtu < netstack.DefaultMTU {
		g.log.Info("set the overlay MTU from the interfaces", "linkMtu", link, "mtu", mtu)
	}
	return mtu
}
