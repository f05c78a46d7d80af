package paths

import (
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// useRelays allocates on these servers instead of the previous ones. The first call adopts the
// allocations of an earlier process.
func (p *Finder) useRelays(servers []relay.Server) {
	p.mu.Lock()
	first, closed := !p.relaying.begun, p.closed
	p.relaying.begun = true
	p.relaying.grants = slices.DeleteFunc(p.relaying.grants, func(g relay.Grant) bool {
		return !slices.ContainsFunc(servers, func(s relay.Server) bool { return s.Address == g.Server && s.Username == g.Username })
	})
	p.mu.Unlock()
	if first {
		p.relaying.relays.Store(p.openRelays(servers, p.storedGrants(), nil))
		return
	}
	gone := make(chan struct{})
	next := p.openRelays(servers, nil, gone)
	old := p.relaying.relays.Swap(next)
	closeOld := func() {
		defer close(gone)
		old.Close()
	}
	p.mu.Lock()
	if closed = closed || p.closed; !closed {
		p.beside.Go(closeOld) // Deallocating takes seconds if the server does not answer.
	}
	p.mu.Unlock()
	if closed {
		closeOld()
	}
	if a := p.relaying.permitted.Load(); a != nil {
		next.Permit(*a)
	}
}

// Allocate keeps an allocation on each configured relay for another socket.
func (p *Finder) Allocate(bind *underlay.Bind, onChange func()) *Relays {
	return openRelays(relaysOptions{
		bind: bind, servers: p.peers.Config().Discovery.TURNServers, ids: &p.relaying.ids, resolve: p.o.Host.Resolve, egress: p.o.Host.Egress,
		onChange: onChange, logger: p.log,
	})
}

// storedGrants returns the allocations that earlier processes made from this port.
func (p *Finder) storedGrants() []relay.Grant {
	var out []relay.Grant
	for _, r := range p.o.Store.Relays() {
		if r.Port == p.plane.Bind.Port() {
			out = append(out, relay.Grant{
				Server: r.Server, Username: r.Username, Address: r.Address, Relayed: r.Relayed, Mapped: r.Mapped, Expires: r.Expires,
			})
		}
	}
	return out
}

func (p *Finder) openRelays(servers []relay.Server, previous []relay.Grant, after <-chan struct{}) *Relays {
	return openRelays(relaysOptions{
		bind: p.plane.Bind, servers: servers, ids: &p.relaying.ids, resolve: p.o.Host.Resolve, egress: p.o.Host.Egress,
		onChange: func() {
			p.Agent().RelaysChanged()
			p.finder.LocalChanged()
		},
		previous: previous, onGrant: p.granted, after: after,
		logger: p.log,
	})
}

// granted notes an allocation that a later process may adopt.
func (p *Finder) granted(g relay.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relaying.grants = slices.DeleteFunc(p.relaying.grants, func(o relay.Grant) bool { return o.Server == g.Server })
	p.relaying.grants = append(p.relaying.grants, g)
	if !p.closed {
		p.beside.Go(p.storeGrants)
	}
}

// storeGrants stores the current allocations.
func (p *Finder) storeGrants() {
	p.relaying.storing.Lock()
	defer p.relaying.storing.Unlock()
	p.mu.Lock()
	list := make([]state.RelayGrant, 0, len(p.relaying.grants))
	for _, g := range p.relaying.grants {
		list = append(list, state.RelayGrant{
			Server: g.Server, Username: g.Username, Address: g.Address, Port: p.plane.Bind.Port(),
			Relayed: g.Relayed, Mapped: g.Mapped, Expires: g.Expires,
		})
	}
	p.mu.Unlock()
	if err := p.o.Store.SetRelays(list); err != nil {
		p.log.Warn("failed to store a relay allocation; after a restart the relayed address changes, and peers may not learn the new one",
			"error", err)
	}
}

func (p *Finder) permit(addrs []netip.Addr) {
	p.relaying.permitted.Store(&addrs)
	p.relays().Permit(addrs)
}
