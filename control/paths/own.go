package paths

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/special"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

// gatherWait is how long an invitation or a reply waits for candidates (docs/operating.md, "What
// scripts may rely on").
const gatherWait = 3 * time.Second

// own gathers this gateway's own candidates.
type own struct {
	agent atomic.Pointer[discovery.Agent]
	// regather holds at most one request to restart gathering with another agent.
	regather wake.Signal
	// clusterAddrs are addresses that the cluster routes here.
	clusterAddrs atomic.Pointer[[]discovery.ServiceEndpoint]
}

// Agent returns the agent that currently gathers this gateway's candidates.
func (p *Finder) Agent() *discovery.Agent { return p.own.agent.Load() }

// SetServiceEndpoints replaces the addresses that the cluster routes to this gateway. The caller
// must not change the configuration meanwhile.
func (p *Finder) SetServiceEndpoints(list []discovery.ServiceEndpoint) {
	list = slices.Clone(list)
	p.own.clusterAddrs.Store(&list)
	p.Agent().SetServiceEndpoints(list)
}

// newAgent returns the agent that the configuration asks for; gather runs it.
func (p *Finder) newAgent(cfg *config.Resolved) (*discovery.Agent, error) {
	mapper, err := p.portMapper(cfg.Discovery.PortMapping)
	if err != nil {
		return nil, cfg.Blame("spec.discovery.portMapping.router", err)
	}
	a, err := discovery.New(discovery.Options{
		Send:        func(packet []byte, to netip.AddrPort) error { return p.plane.Bind.WriteTo(packet, peer.Direct(to)) },
		Port:        func() uint16 { return p.plane.Bind.Port() },
		HostAddrs:   p.o.Host.HostAddrs,
		Advertise:   cfg.Discovery.Advertise,
		STUNServers: cfg.Discovery.STUNServers,
		Resolve:     p.o.Host.Resolve,
		Exclude:     cfg.Discovery.Exclude,
		Inside:      p.o.Host.Inside,
		Relays:      func() []path.Relay { return p.relays().Local() },
		PortMapper:  mapper,
		Changed:     p.finder.LocalChanged,
		NetworkChanged: func(string) {
			p.plane.Bind.RouteChanged()
			p.finder.NetworkChanged()
			p.relays().check()
			p.o.Tell.NetworkChanged()
		},
		Logger: p.log,
	})
	if err != nil {
		return nil, cfg.Blame("spec.discovery", err)
	}
	if list := p.own.clusterAddrs.Load(); list != nil {
		a.SetServiceEndpoints(*list)
	}
	return a, nil
}

// replaceAgent makes gather run another agent.
func (p *Finder) replaceAgent(a *discovery.Agent) {
	p.own.agent.Store(a)
	p.own.regather.Set()
}

// portMapper returns the current port mapper if it matches the configuration, else a new one; nil
// if port mapping is off.
func (p *Finder) portMapper(want config.PortMapping) (*portmap.Mapper, error) {
	if !want.Enabled {
		return nil, nil
	}
	if a := p.Agent(); a != nil && p.peers.Config().Discovery.PortMapping == want && a.PortMapper() != nil {
		return a.PortMapper(), nil
	}
	return portmap.New(portmap.Options{
		Router: want.Router, Port: func() uint16 { return p.plane.Bind.Port() },
		Secret:  p.portMappingSecret(),
		Changed: func() { p.Agent().PortMappingChanged() },
		Logger:  p.log,
	})
}

// portMappingSecret is derived from the gateway's key, so that a gateway that was killed can renew
// the mapping it left behind.
func (p *Finder) portMappingSecret() []byte {
	h := hmac.New(sha256.New, []byte(p.o.Key.Base64()))
	h.Write([]byte("postern port mapping v1"))
	return h.Sum(nil)
}

// mapping runs a port mapper (nil for none) and returns the function that stops it and waits until
// the mapping is deleted.
func (p *Finder) mapping(ctx context.Context, m *portmap.Mapper) (end func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
			p.log.Warn("port mapping is off", "error", err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// gather runs the current agent and its port mapper until the gateway ends. A mapper that the next
// agent shares keeps running.
func (p *Finder) gather(ctx context.Context) {
	var mapper *portmap.Mapper
	end := func() {}
	defer func() { end() }()
	for ctx.Err() == nil {
		running, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		agent := p.Agent()
		if m := agent.PortMapper(); m != mapper {
			end()
			mapper, end = m, p.mapping(ctx, m)
		}
		go func() {
			defer close(done)
			if err := agent.Run(running); !errors.Is(err, context.Canceled) {
				p.log.Warn("failed to gather candidates", "error", err)
			}
		}()
		select {
		case <-p.own.regather:
		case <-ctx.Done():
		}
		cancel()
		<-done
	}
}

// OwnCandidates waits briefly for candidates still to be found and returns those there are. The
// warnings list what was configured and is missing, and whether none can be dialled from outside.
func (p *Finder) OwnCandidates(ctx context.Context) (list []ticket.Candidate, warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, gatherWait)
	defer cancel()
	a := p.Agent()
	if err := a.WaitGathered(ctx); err != nil {
		warnings = append(warnings, err.Error())
	}
	relays := p.relays()
	relays.wait(ctx)
	for _, r := range relays.statuses() {
		if !r.Relayed.IsValid() {
			warnings = append(warnings, "relay "+r.Address+": "+cmp.Or(r.Err, "no allocation yet"))
		}
	}
	found := a.Snapshot()
	for _, p := range found.Problems {
		warnings = append(warnings, p.Source+" "+p.What+": "+p.Err)
	}
	all := a.Candidates()
	for _, c := range all {
		list = append(list, ticket.Candidate{Addr: c.Addr, Source: c.Source})
	}
	open := func(c discovery.Candidate) bool { return fromOutside(c, found.NAT) }
	if len(all) > 0 && !slices.ContainsFunc(all, open) {
		warnings = append(warnings, "nobody outside this gateway's network can dial it"+
			": if `postern join` gets no answer there, run here the line that it prints; or name a relay in "+
			"spec.discovery.turnServers, or forward a UDP port to this gateway and set spec.discovery.advertise")
	}
	return list[:min(len(list), ticket.MaxCandidates)], warnings
}

// fromOutside reports whether a gateway in another network, which never contacted us, can dial a
// candidate. Addresses from the operator are taken at face value.
func fromOutside(c discovery.Candidate, n discovery.NAT) bool {
	switch c.Source {
	case discovery.SourceAdvertised, discovery.SourceService, discovery.SourceRelay:
		return true
	case discovery.SourceSTUN, discovery.SourcePeer: // the NAT's mapping of packets from here
		return n.Mapping == discovery.MappingNone || n.Filtering == discovery.FilteringEndpointIndependent
	}
	return special.Scope(c.Addr.String()) == ""
}
