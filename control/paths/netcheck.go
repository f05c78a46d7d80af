package paths

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/discovery/portmap"
)

// netCheckWait bounds the wait for servers that are queried again.
const netCheckWait = 5 * time.Second

// NetCheck queries the STUN and TURN servers and the router again and describes the network around
// this gateway.
func (p *Finder) NetCheck(ctx context.Context) (api.NetCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, netCheckWait)
	defer cancel()
	agent, relays := p.Agent(), p.relays()
	relays.check()
	agent.Refresh(ctx)
	relays.wait(ctx)
	s := agent.Snapshot()
	var states []discovery.RelayState
	for _, r := range relays.statuses() {
		states = append(states, discovery.RelayState{Address: r.Address, Allocated: r.Relayed.IsValid()})
	}
	out := api.NetCheck{
		Kind: "NetCheck", Mapping: s.NAT.Mapping, Filtering: s.NAT.Filtering, PublicAddresses: []string{},
		STUNServers: []api.STUNServerStatus{}, TURNServers: []api.TURNServerStatus{},
		PortMapping: portMappingStatus(s.PortMapping),
		Hints:       append([]string{}, discovery.Hints(s, states...)...),
	}
	for _, a := range s.NAT.PublicAddresses {
		out.PublicAddresses = append(out.PublicAddresses, a.String())
	}
	for _, server := range s.Servers {
		t := api.STUNServerStatus{Name: server.Name, RTTSeconds: server.RTT.Seconds(), Error: server.Err}
		if server.Addr.IsValid() {
			t.Address = server.Addr.String()
		}
		if server.Mapped.IsValid() {
			t.Mapped = server.Mapped.String()
		}
		out.STUNServers = append(out.STUNServers, t)
	}
	for _, r := range relays.statuses() {
		t := api.TURNServerStatus{Address: r.Address, Transport: r.Transport, RTTSeconds: r.RTT.Seconds(), Error: r.Err}
		if r.Relayed.IsValid() {
			t.Relayed = r.Relayed.String()
		}
		if t.Error == "" && t.Relayed == "" {
			t.Error = "no answer yet"
		}
		for _, a := range slices.SortedFunc(maps.Keys(r.Denied), netip.Addr.Compare) {
			out.Hints = append(out.Hints, "the relay "+r.Address+" refuses to relay to "+a.String()+": "+r.Denied[a])
		}
		out.TURNServers = append(out.TURNServers, t)
	}
	out.Proxy = proxyStatus(p.o.Host.Egress)
	return out, nil
}

// proxyStatus returns the state of connections through the proxy; nil without a proxy.
func proxyStatus(d *egress.Dialer) *api.ProxyStatus {
	out := &api.ProxyStatus{Address: d.Address(), Targets: []api.ProxyTarget{}}
	if out.Address == "" {
		return nil
	}
	for _, o := range d.Outcomes() {
		t := api.ProxyTarget{Address: o.Target, At: o.At}
		if o.Err != nil {
			t.Error = o.Err.Error()
		}
		out.Targets = append(out.Targets, t)
	}
	return out
}

// portMappingStatus returns the state of the mapping; nil means that port mapping is off.
func portMappingStatus(s *portmap.Status) api.PortMappingStatus {
	if s == nil {
		return api.PortMappingStatus{Mode: config.PortMappingOff, State: "off"}
	}
	out := api.PortMappingStatus{
		Mode: config.PortMappingAuto, State: string(s.State), Protocol: string(s.Protocol),
		LifetimeSeconds: s.Lifetime.Seconds(), Error: s.Err,
	}
	if s.Router.IsValid() {
		out.Router = s.Router.String()
	}
	if s.External.IsValid() {
		out.External, out.Internal = s.External.String(), s.Internal.String()
	}
	if !s.ExpiresAt.IsZero() {
		out.ExpiresAt = &s.ExpiresAt
	}
	if !s.RetryAt.IsZero() {
		out.RetryAt = &s.RetryAt
	}
	if s.State == portmap.StateMapped {
		out.Verified = cmp.Or(string(s.Proof), "none")
	}
	return out
}
