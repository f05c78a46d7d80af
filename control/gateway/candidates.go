package gateway

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/tunnel/peer"
)

// gatherWait is how long an invitation or a reply waits for candidates (docs/operating.md, "What scripts may rely on").
const gatherWait = 3 * time.Second

// newAgent makes the agent that the configuration asks for; gather runs it.
func (g *Gateway) newAgent(cfg *config.Resolved) (*discovery.Agent, error) {
	mapper, err := g.portMapper(cfg.Discovery.PortMapping)
	if err != nil {
		return nil, cfg.Blame("spec.discovery.portMapping.router", err)
	}
	a, err := discovery.New(discovery.Options{
		Send:        func(packet []byte, to netip.AddrPort) error { return g.plane.Bind.WriteTo(packet, peer.Direct(to)) },
		Port:        func() uint16 { return g.plane.Bind.Port() },
		HostAddrs:   g.opts.HostAddrs,
		Advertise:   cfg.Discovery.Advertise,
		STUNServers: cfg.Discovery.STUNServers,
		Resolve:     g.opts.Resolve,
		Exclude:     cfg.Discovery.Exclude,
		Relays:      func() []path.Relay { return g.paths.relays.Load().local() },
		PortMapper:  mapper,
		Changed:     g.paths.finder.LocalChanged,
		NetworkChanged: func(string) {
			g.plane.Bind.RouteChanged()
			g.paths.finder.NetworkChanged()
			g.paths.relays.Load().check()
			g.dns.networkChanged()
		},
		Logger: g.log,
	})
	if err != nil {
		return nil, cfg.Blame("spec.discovery", err)
	}
	if list := g.clusterAddrs.Load(); list != nil {
		a.SetServiceEndpoints(*list)
	}
	return a, nil
}

// replaceAgent has gather run another agent.
func (g *Gateway) replaceAgent(a *discovery.Agent) {
	g.agent.Store(a)
	select {
	case g.regather <- struct{}{}:
	default: // gather has yet to take up the last one, and takes this
	}
}

// portMapper is what asks the router for a port: the present one when it does what the
// configuration wants, nil when no router is to be asked.
func (g *Gateway) portMapper(want config.PortMapping) (*portmap.Mapper, error) {
	if !want.Enabled {
		return nil, nil
	}
	if a := g.agent.Load(); a != nil && g.peers.Config().Discovery.PortMapping == want && a.PortMapper() != nil {
		return a.PortMapper(), nil
	}
	return portmap.New(portmap.Options{
		Router: want.Router, Port: func() uint16 { return g.plane.Bind.Port() },
		Secret:  g.portMappingSecret(),
		Changed: func() { g.agent.Load().PortMappingChanged() },
		Logger:  g.log,
	})
}

// portMappingSecret is derived from the gateway's key, so that a gateway that was killed
// may renew the mapping that it left behind.
func (g *Gateway) portMappingSecret() []byte {
	h := hmac.New(sha256.New, []byte(g.key.Base64()))
	h.Write([]byte("postern port mapping v1"))
	return h.Sum(nil)
}

// mapping runs a port mapper (nil = none) and gives the function that ends it, which waits
// until the mapping is withdrawn.
func (g *Gateway) mapping(m *portmap.Mapper) (end func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(g.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
			g.log.Warn("the router is not asked for a port", "error", err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// gather runs the present agent, and the port mapper that it listens to, until the gateway
// ends. A mapper that the next agent listens to as well is not disturbed.
func (g *Gateway) gather() {
	var mapper *portmap.Mapper
	end := func() {}
	defer func() { end() }()
	for g.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(g.ctx)
		done := make(chan struct{})
		agent := g.agent.Load()
		if m := agent.PortMapper(); m != mapper {
			end()
			mapper, end = m, g.mapping(m)
		}
		go func() {
			defer close(done)
			if err := agent.Run(ctx); !errors.Is(err, context.Canceled) {
				g.log.Warn("candidates cannot be gathered", "error", err)
			}
		}()
		select {
		case <-g.regather:
		case <-g.ctx.Done():
		}
		cancel()
		<-done
	}
}

// ownCandidates waits a little for what has yet to be found and gives what there is. The
// warnings say what was configured and is missing.
func (g *Gateway) ownCandidates(ctx context.Context) (list []ticket.Candidate, warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, gatherWait)
	defer cancel()
	a := g.agent.Load()
	if err := a.WaitGathered(ctx); err != nil {
		warnings = append(warnings, err.Error())
	}
	relays := g.paths.relays.Load()
	relays.wait(ctx)
	for _, r := range relays.statuses() {
		if !r.Relayed.IsValid() {
			warnings = append(warnings, "relay "+r.Address+": "+cmp.Or(r.Err, "no allocation yet"))
		}
	}
	for _, p := range a.Snapshot().Problems {
		warnings = append(warnings, p.Source+" "+p.What+": "+p.Err)
	}
	for _, c := range a.Candidates() {
		list = append(list, ticket.Candidate{Addr: c.Addr, Source: c.Source})
	}
	return list[:min(len(list), ticket.MaxCandidates)], warnings
}

// announced are the candidates that a peer told of itself and that may be dialled. A
// peer must not make us send to what is ours or what only means something here:
// loopback, link-local (cloud metadata services among them), multicast, the overlay and
// this host's own addresses. When those are not known nothing is trusted: such a peer can
// still dial us.
func (g *Gateway) announced(list []ticket.Candidate) []ticket.Candidate {
	own, err := g.opts.OwnAddrs()
	if err != nil {
		g.log.Warn("no announced candidate is dialled, since this host's own addresses are not known", "error", err)
		return nil
	}
	forbidden := g.peers.Config().Discovery.Exclude
	var out []ticket.Candidate
	for _, c := range list {
		if why := discovery.Dialable(c.Addr, own, forbidden); why != "" {
			g.log.Debug("announced candidate is not dialled", "address", c.Addr.String(), "reason", why)
			continue
		}
		out = append(out, ticket.Candidate{Addr: netip.AddrPortFrom(c.Addr.Addr().Unmap(), c.Addr.Port()), Source: c.Source})
	}
	return out
}

// invited are the candidates of a ticket. Its maker is trusted with what a stranger is
// not (two gateways on one host, for a try), but for what can be nobody's.
func invited(list []ticket.Candidate) []ticket.Candidate {
	return slices.DeleteFunc(slices.Clone(list), func(c ticket.Candidate) bool {
		return unreachableElsewhere(c.Addr.Addr().Unmap())
	})
}

func unreachableElsewhere(a netip.Addr) bool {
	return !a.IsValid() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || peer.OverlayPrefix.Contains(a)
}

func apiCandidates(list []ticket.Candidate) []api.Candidate {
	out := make([]api.Candidate, 0, len(list))
	for _, c := range list {
		out = append(out, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return out
}
