package paths

import (
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// AddFacts adds how a peer is reached, and what was seen of it, to the facts of a check.
func (p *Finder) AddFacts(m *roster.Member, f *check.Facts) {
	t, _ := p.tunnel.Peer(m.Key)
	w := p.Way(m, t)
	f.LastHandshake, f.Attempts = t.LastHandshake, t.Attempts
	for _, c := range w.Candidates(m) {
		f.Candidates = append(f.Candidates, catalogue.Candidate{
			Address: c.Address, Source: c.Source, State: c.State, Reason: c.Reason, Relay: c.Relay,
		})
	}
	if w.Found {
		p.wayFacts(m, w, f)
	} else {
		for _, e := range m.Endpoints(p.peers.ProvenEndpoints(m.Key)) {
			f.Endpoints = append(f.Endpoints, e.String())
		}
	}
	if !m.Pending {
		p.sightings(m, w, f)
	}
}

// AddBrief adds the part of AddFacts that decides whether a peer needs checking at all.
func (p *Finder) AddBrief(m *roster.Member, f *check.Facts) {
	s, found := p.finder.Selected(m.Key)
	if !found || m.Stock || m.Pending {
		return
	}
	f.Path = check.PathFacts{Kind: api.PathNone, Since: s.Since, RTT: s.RTT, MTU: s.MTU, LinkMTU: p.plane.MTU, Interruptions: check.Interruptions(s.Interruptions)}
	if s.Path.IsValid() {
		f.Probed = s.Heard
		f.Path.Kind, f.Path.Remote = s.Kind, s.Path.Remote.String()
	}
}

// unansweredAlive is how long after our first unanswered probe a request from the peer shows that
// it is alive but cannot hear us: a few probes, plus the time an answer takes.
const unansweredAlive = time.Second

// wayFacts adds what the path finder knows about a peer, and what was seen of it while it does not
// answer.
func (p *Finder) wayFacts(m *roster.Member, w Way, f *check.Facts) {
	selected := w.Path.Selected.IsValid()
	if selected {
		f.Probed = w.Path.Proven // the peer's own requests say nothing about ours
	} else {
		f.NoPath, f.PathLost = w.Path.Reason, w.Path.Since
	}
	f.Endpoints = w.Addresses()
	f.Path = check.PathFacts{
		Kind: api.PathNone, Since: w.Path.Since, RTT: w.Path.RTT, MTU: w.Path.MTU, LinkMTU: p.plane.MTU,
		NAT: natFacts(p.Agent().Snapshot().NAT), Traffic: p.traffic(m), Unanswered: w.Path.Unanswered, Answered: w.Path.Answered,
		Refused:       p.superseded.by(m.Name),
		Interruptions: check.Interruptions(w.Path.Interruptions),
	}
	if selected {
		f.Path.Kind, f.Path.Remote = w.Path.Kind, w.Shown(w.Path.Selected)
		f.Path.Relay = w.Relay()
	}
	for _, u := range w.Unresolved {
		f.Unresolved = append(f.Unresolved, check.NameFact{Name: u.Name, Err: u.Reason, Silent: u.Silent})
	}
	s := p.finder.Sight(m.Key)
	for _, n := range s.Moved {
		f.Moved = append(f.Moved, check.NameFact{Name: n.Name, Was: texts(n.Was), Now: texts(n.Now), At: n.At})
	}
	for _, c := range w.Path.Candidates {
		if c.Asked.After(f.Path.Asked) {
			f.Path.Asked = c.Asked
		}
	}
	for _, n := range s.Named {
		f.Named = append(f.Named, check.NameFact{Name: n.Name, Now: texts(n.Now)})
	}
	f.Boots, f.BootsAt = s.Boots, s.BootsAt
	if !s.RemovedAt.IsZero() {
		f.Removed = check.Sight{From: s.RemovedFrom.String(), At: s.RemovedAt}
	}
	// A peer that has just died was heard until then. Only a packet after its answers ceased shows
	// that it cannot hear us. Heard would not do, since it includes the peer's own requests.
	ceased := w.Path.Since
	if selected {
		ceased = w.Path.Unanswered.Add(unansweredAlive)
	}
	if (!selected || !w.Path.Unanswered.IsZero()) && s.RequestAt.After(ceased) && s.RequestAt.After(w.Path.Proven) {
		f.HeardUnanswered = check.Sight{From: s.RequestFrom.String(), At: s.RequestAt}
	}
}

// sightings adds what happened to packets sent to a peer, and what arrived at our port that may
// explain why it does not answer. The latter is not read while the peer is heard.
func (p *Finder) sightings(m *roster.Member, w Way, f *check.Facts) {
	var ips []netip.Addr
	for _, c := range m.Known() {
		ips = append(ips, c.Addr.Addr())
	}
	for _, c := range w.Path.Candidates {
		ips = append(ips, c.Path.Remote.Addr())
	}
	f.Unreachable = p.refusals(slices.DeleteFunc(p.plane.Bind.Unreachable(), func(u underlay.Unreachable) bool {
		return !slices.Contains(ips, u.To.Addr()) || w.passedSince(u, time.Now())
	}))
	if now := time.Now(); w.Connected(now) && w.Unconfirmed(now).IsZero() {
		return
	}
	s := p.recent.sightings(p.tunnel, m.Key, ips)
	f.Initiated = sight(s.Initiated)
	if f.Skew == 0 {
		f.Skew = s.Skew
	}
	f.Unverified, f.NotForUs, f.CameBack = sight(s.Unverified), sight(s.NotForUs), sight(s.CameBack)
	if !s.OtherKey.At.IsZero() {
		f.OtherKey = check.KeySight{Sight: sight(s.OtherKey.Sight), Key: s.OtherKey.Key.String()}
	}
	if !s.StampInPast.At.IsZero() {
		f.StampInPast = check.StampSight{Sight: sight(s.StampInPast.Sight), Stamp: s.StampInPast.Stamp, Newest: s.StampInPast.Newest}
	}
}

// errorTakes is how long after a datagram the error for it may come: Linux gives up on a next hop
// after 3 s.
const errorTakes = 5 * time.Second

// passedSince reports whether a later probe to where an error was for caused none: whoever sent the
// error has stopped, as a host does whose gateway was started again.
func (w Way) passedSince(u underlay.Unreachable, now time.Time) bool {
	return slices.ContainsFunc(w.Path.Candidates, func(c path.PairStatus) bool {
		return c.Path == (peer.Path{Remote: u.To}) && c.Asked.Sub(u.At) > errorTakes && now.Sub(c.Asked) > errorTakes
	})
}

// refusals returns the errors for datagrams that were not delivered. An ICMP error from this host
// itself means that it found no next hop.
func (p *Finder) refusals(all []underlay.Unreachable) (out []check.Refusal) {
	if len(all) == 0 {
		return nil
	}
	own, err := p.o.Host.OwnAddrs()
	if err != nil {
		p.log.Debug("failed to list this host's addresses", "error", err)
	}
	for _, u := range all {
		r := check.Refusal{To: u.To.String(), Reason: u.Reason, Here: u.Here, At: u.At}
		switch {
		case slices.Contains(own, u.By) && u.By != u.To.Addr():
			r.Here = true
		case u.By.IsValid():
			r.By = u.By.String()
		}
		out = append(out, r)
	}
	return out
}

// Doubt probes the path to a peer at once, because something went unanswered.
func (p *Finder) Doubt(name string) {
	if m := p.peers.Load().ByName(name); m != nil {
		p.finder.Doubt(m.Key)
	}
}

// Reprobe probes the paths to a peer at once, because its tunnel carries data and no probe is
// answered.
func (p *Finder) Reprobe(name string) {
	if m := p.peers.Load().ByName(name); m != nil {
		p.finder.Reprobe(m.Key)
	}
}

// Ask queries the STUN servers and the relays to see whether they answer.
func (p *Finder) Ask() {
	p.Agent().Ask()
	p.relays().ask()
}

func sight(s tunnel.Sight) check.Sight {
	if s.At.IsZero() {
		return check.Sight{}
	}
	return check.Sight{From: s.From.String(), At: s.At}
}

// Own returns the facts for a check of this gateway: its socket, its candidates, and the servers
// that provide them.
func (p *Finder) Own() check.Own {
	s := p.Agent().Snapshot()
	cfg := p.peers.Config()
	o := check.Own{Name: cfg.Name, Shown: p.shown(cfg, s)}
	o.Mapping = mappingFacts(s.PortMapping)
	o.Sockets.ReceiveBuffer, o.Sockets.SendBuffer, o.Sockets.Drops = p.plane.Bind.Socket()
	refusals := p.plane.Bind.Refusals()
	o.Sockets.Refused, o.Sockets.RefusedBecause = refusals.Count, refusals.Reason
	o.Refused = p.refusals(p.plane.Bind.Unreachable())
	o.Superseded.By, o.Superseded.At = p.superseded.last()
	o.Strangers = p.unknownKeys(time.Now())
	for _, server := range s.Servers {
		x := check.Server{Name: server.Name, Err: server.Err, At: server.AnsweredAt, Unanswered: server.AskedAt, Failures: server.Failures, Nameless: server.Nameless}
		if server.Addr.IsValid() {
			x.Address = server.Addr.String()
		}
		if server.Mapped.IsValid() {
			x.Mapped = server.Mapped.Addr()
		}
		x.Agreed = server.Agreed
		if server.Err != "" {
			x.Failure = catalogue.FailureTimeout // or a useless answer: the fix is another server, too
		}
		o.STUN = append(o.STUN, x)
	}
	o.Proxy, o.Proxied = p.o.Host.Egress.Address(), p.o.Host.Egress.Outcomes()
	for _, r := range p.relays().statuses() {
		o.TURN = append(o.TURN, check.Server{Name: r.Address, Address: r.Address, Err: r.Err, Failure: relayFailures[r.Fault], At: r.Since, Unanswered: r.AskedAt})
	}
	return o
}

// relayFailures are the relay faults that have their own fix.
var relayFailures = map[relay.Fault]catalogue.Failure{
	relay.FaultSilent: catalogue.FailureTimeout, relay.FaultCredentials: catalogue.FailureRejected, relay.FaultCertificate: catalogue.FailureCertificate,
}

// Shown returns what this gateway shows of itself to the outside.
func (p *Finder) Shown() catalogue.Shown { return p.shown(p.peers.Config(), p.Agent().Snapshot()) }

// Remote returns the address of the path to a peer; empty without a path.
func (p *Finder) Remote(m *roster.Member) string {
	s, found := p.finder.Selected(m.Key)
	if !found || !s.Path.IsValid() {
		return ""
	}
	return s.Path.Remote.String()
}

func (p *Finder) shown(cfg *config.Resolved, s discovery.Snapshot) catalogue.Shown {
	o := catalogue.Shown{
		Port: p.plane.Bind.Port(), NAT: natFacts(s.NAT),
		Candidates: []catalogue.Candidate{}, Advertised: cfg.Discovery.Advertise,
	}
	for _, c := range s.Candidates {
		o.Candidates = append(o.Candidates, catalogue.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return o
}

func natFacts(n discovery.NAT) catalogue.NAT {
	return catalogue.NAT{Mapping: n.Mapping, Filtering: n.Filtering}
}

func texts(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

// ShownNAT returns what was found about the NAT, for display.
func ShownNAT(n discovery.NAT) api.NAT {
	out := api.NAT{Mapping: n.Mapping, Filtering: n.Filtering, PublicAddresses: []string{}}
	for _, a := range n.PublicAddresses {
		out.PublicAddresses = append(out.PublicAddresses, a.String())
	}
	return out
}

// mappingFacts returns the state of the port mapping, for a check; nil if there is none.
func mappingFacts(s *portmap.Status) *check.Mapping {
	if s == nil {
		return nil
	}
	shown := portMappingStatus(s)
	return &check.Mapping{
		State: shown.State, Protocol: shown.Protocol, Router: shown.Router, External: shown.External,
		Verified: shown.Verified, Err: shown.Error, Code: mappingCode(s.Fault),
	}
}

func mappingCode(f portmap.Fault) catalogue.Code {
	switch f {
	case portmap.FaultStale:
		return catalogue.MappingStale
	case portmap.FaultRefused:
		return catalogue.MappingRefused
	case portmap.FaultUnreachable:
		return catalogue.RouterSilent
	case portmap.FaultBehindNAT:
		return catalogue.MappingInside
	case portmap.FaultContradicted, portmap.FaultImpossible:
		return catalogue.MappingElsewhere
	case portmap.FaultNone:
	}
	return ""
}
