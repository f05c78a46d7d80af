package exchange

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/peer"
)

// basis is what a report is made from, except times: reports with the same basis say the same.
type basis struct {
	gateway          string
	results          *verdict.Finding // the first of a list that never changes
	nat              catalogue.NAT
	offers, identity report.Mark
}

// run sends changes to peers until ctx ends. It looks at all peers every few seconds; changed makes
// it look sooner.
func (r *reports) run(ctx context.Context) {
	turns(ctx, r.wake, func(now time.Time, all bool) { r.turn(now, r.members(all)) })
}

// turns calls turn for all peers every reportPace and for some after each wake, at most once per
// turnPace.
func turns(ctx context.Context, wake <-chan struct{}, turn func(now time.Time, all bool)) {
	t := time.NewTicker(reportPace)
	defer t.Stop()
	for all := true; ; {
		turn(time.Now(), all)
		select {
		case <-ctx.Done():
			return
		case <-time.After(turnPace):
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			all = true
		case <-wake:
			all = false
		}
	}
}

// changed requests a look at all verdicts soon, changedFor at those on one peer. They do not block.
func (r *reports) changed() { r.look(func() { r.all = true }) }

func (r *reports) changedFor(k peer.PublicKey) { r.look(func() { r.about[k] = true }) }

func (r *reports) look(at func()) {
	r.mu.Lock()
	at()
	r.mu.Unlock()
	r.wake.Set()
}

// members returns the peers to look at and resets the request.
func (r *reports) members(all bool) []*roster.Member {
	r.mu.Lock()
	about := r.about
	all = all || r.all
	r.about, r.all = map[peer.PublicKey]bool{}, false
	r.mu.Unlock()
	now := r.x.o.Peers.Load()
	if all {
		return now.Members()
	}
	var out []*roster.Member
	for k := range about {
		if m := now.ByKey(k); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// VerdictChanged sends a peer a changed verdict on it.
func (x *Exchange) VerdictChanged(name string) {
	if m := x.o.Peers.Load().ByName(name); m != nil {
		x.reports.changedFor(m.Key)
	}
}

// turn sends reports to those of the members that do not know the current state.
func (r *reports) turn(now time.Time, members []*roster.Member) {
	for _, m := range members {
		if !r.takes(m) || !r.x.o.Paths.Connected(m, now) {
			continue
		}
		results, of := r.basis(m)
		if r.same(m.Key, of, now) {
			continue
		}
		if said, ok := r.compose(m, results, of, now); ok && r.due(m.Key, said, of, now) {
			r.mail.Post(m.Key, struct{}{})
		}
	}
}

// basis returns what a report to a peer is made from now.
func (r *reports) basis(m *roster.Member) ([]verdict.Finding, basis) {
	results := r.x.checks.Findings(m.Name)
	nat := r.x.o.Paths.Agent().NAT()
	of := basis{
		gateway: r.x.o.Peers.Config().Name, nat: catalogue.NAT{Mapping: nat.Mapping, Filtering: nat.Filtering},
		offers: r.x.issuer.OffersMark(m), identity: r.x.issuer.IdentityMark(m),
	}
	if len(results) > 0 {
		of.results = &results[0]
	}
	return results, of
}

// same reports whether a peer already knows what a report of this basis would say and needs no
// renewal yet.
func (r *reports) same(k peer.PublicKey, of basis, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.told[k]
	return of.results != nil && of == t.of && now.Sub(t.at) < report.RenewAfter
}

// takes reports whether a peer understands reports.
func (r *reports) takes(m *roster.Member) bool {
	h, ok := r.x.hellos.get(m.Key)
	return ok && !m.Stock && !m.Pending && h.Can(auth.CapabilityReport)
}

// due reports whether to send to a peer now, and assumes that the caller does.
func (r *reports) due(k peer.PublicKey, said report.Report, of basis, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.told[k]
	if r.x.o.Peers.Load().ByKey(k) == nil || now.Before(t.next) {
		return false
	}
	if said.Same(t.said) && now.Sub(t.at) < report.RenewAfter {
		t.of = of
		r.told[k] = t
		return false
	}
	t.next = now.Add(reportPace)
	r.told[k] = t
	return true
}

// compose writes down what is known about reaching a peer; false if nothing is.
func (r *reports) compose(m *roster.Member, results []verdict.Finding, of basis, now time.Time) (report.Report, bool) {
	out := report.Report{
		At: now, Gateway: of.gateway, Verdicts: report.Tell(results, now), Hears: report.Hears{Report: report.Never},
		Offers: of.offers, Identity: of.identity, NAT: of.nat,
	}
	t, _ := r.x.o.Tunnel.Peer(m.Key)
	out.Hears.Handshake, out.Hears.Probe = ago(t.LastHandshake, now), ago(r.x.o.Paths.Reached(m, t).Path.Heard, now)
	if h, ok := r.last(m.Key); ok {
		out.Hears.Report = ago(h.at, now)
	}
	return out, len(out.Verdicts) > 0
}

func ago(at, now time.Time) time.Duration {
	if at.IsZero() {
		return report.Never
	}
	return max(now.Sub(at), 0)
}
