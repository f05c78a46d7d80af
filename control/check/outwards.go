package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/special"
)

// NameNetwork is the check of what everything that is sent from here needs: a link, a route, and
// somebody outside who answers.
const NameNetwork = "network"

// NameKey is the check of whether another gateway runs with this one's key.
const NameKey = "key"

// ownKey judges what peers say of this gateway's key: that a gateway with it was started later, which
// they follow. A peer says so for as long as it runs, also when that one has stopped: it counts while
// the peer is not reached. Without that there is no check.
func ownKey(o Own, s standing, now time.Time) []verdict.Finding {
	said := o.Superseded
	if said.At.IsZero() || now.Sub(said.At) >= evidenceLife || !slices.Contains(s.unreached, said.By) {
		return nil
	}
	p := catalogue.Params{Inbound: true}
	p.PeerName, p.Seen = said.By, said.At
	return []verdict.Finding{beginOwn(NameKey).fail(api.Error, StageProbe, catalogue.KeyElsewhere, p)}
}

// NameResolver is the check of who resolves names for this machine.
const NameResolver = "resolver"

// resolver judges who resolves names for this machine, by those that nobody answers for: of STUN
// servers, and of peers that are sought by nothing else. Without any there is no check.
func resolver(o Own, s standing) []verdict.Finding {
	names := slices.Clone(s.unnamed)
	for _, server := range o.STUN {
		if server.Nameless {
			names = append(names, server.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	r := beginOwn(NameResolver)
	r.Rests = []string{verdict.Own(NameNetwork)}
	p := catalogue.Params{Inbound: true, Names: slices.Compact(names)}
	return []verdict.Finding{r.fail(api.Error, StageResolve, catalogue.ResolverSilent, p)}
}

// hop is how far something got that was sent, from this machine outwards. Where nothing gets
// further, that is the root, and what lies beyond is not known.
type hop int

const (
	hopRoute     hop = iota // this machine has no route
	hopProhibits            // a rule of this machine prohibits it
	hopNeighbour            // the next hop does not answer this machine
	hopRouter               // a router on the way refuses it
	hopBeyond               // nobody says that it did not arrive, or its own end does
)

// hops are the codes of where something ends.
func hops() map[hop]catalogue.Code {
	return map[hop]catalogue.Code{
		hopRoute: catalogue.NoRoute, hopProhibits: catalogue.SendProhibited, hopNeighbour: catalogue.NextHopSilent,
		hopRouter: catalogue.RouterRefuses, hopBeyond: catalogue.NothingAnswers,
	}
}

// hop is where a refusal happened.
func (r Refusal) hop() hop {
	switch {
	case !r.Here && r.Reason == portUnreachable:
		return hopBeyond
	case !r.Here:
		return hopRouter
	case r.Reason == networkUnreachable:
		return hopRoute
	case r.Reason == hostUnreachable:
		return hopNeighbour
	}
	return hopProhibits
}

// furthest is the refusal of what got furthest of what was sent to the addresses, and where that
// ended.
func furthest(to []string, refusal func(string) (Refusal, bool)) (last Refusal, at hop) {
	at = -1
	for _, a := range to {
		r, refused := refusal(a)
		h := hopBeyond
		if refused {
			h = r.hop()
		}
		if h > at {
			last, at = r, h
		}
	}
	return last, at
}

// refusal gives the one of an address that still explains the failure.
func (e evidence) refusal(address string) (Refusal, bool) {
	i := slices.IndexFunc(e.Unreachable, func(r Refusal) bool { return r.To == address && e.refuses(r) })
	if i < 0 {
		return Refusal{}, false
	}
	return e.Unreachable[i], true
}

// sentTo are the addresses that the peer is sought at from this machine's own socket: those that
// anybody can dial or, without any, all. A private address may be of any network.
func (e evidence) sentTo() []string {
	var all, public []string
	for _, c := range e.Candidates {
		if c.Relay == "" && c.State != "frozen" {
			all = append(all, c.Address)
		}
	}
	if len(e.Candidates) == 0 {
		all = e.Endpoints
	}
	for _, a := range all {
		if special.Scope(a) == "" {
			public = append(public, a)
		}
	}
	if len(public) > 0 {
		return public
	}
	return all
}

// ends reports whether all that is sent to the peer ends at a hop before its own. To a private
// address of no network of ours nothing else can happen: it is the address that is wrong.
func ends(at hop) func(evidence, *catalogue.Params) bool {
	return func(e evidence, p *catalogue.Params) bool {
		if elsewhere := *p; e.private(&elsewhere) {
			return false
		}
		r, h := furthest(e.sentTo(), e.refusal)
		r.explain(p)
		return h == at
	}
}

// explain puts a refusal into what is said of a fault.
func (r Refusal) explain(p *catalogue.Params) {
	p.Address, p.By, p.Seen, p.Detail = r.To, r.By, r.At, r.Reason
}

// silentWith is how close two times of falling silent are that have one reason: a server is asked
// every 25 s, and an idle path every 23 s.
const silentWith = time.Minute

// network judges what everything outside needs. Where a peer works, or a server has answered since
// the others fell silent, it is well: links that are not known here may lead out.
//
//	links                  servers                           verdict
//	none has a carrier     none answers                      PST0121
//	any                    none is known, or no peer fails   ok: whatever fails is a peer's
//	any                    all are refused at one hop        the code of that hop
//	any                    they fell silent with the peers   PST0125; of those that never
//	                                                         answered it takes two
func network(o Own, s standing, now time.Time) verdict.Finding {
	r := beginOwn(NameNetwork)
	var p catalogue.Params
	p.Inbound, p.Port = true, o.Port
	silent, answers := o.silentServers(s, now)
	if s.working > 0 || answers {
		return r.ok(0)
	}
	if len(o.Links) > 0 && !slices.ContainsFunc(o.Links, func(l Link) bool { return l.Up }) {
		for _, l := range o.Links {
			p.Names = append(p.Names, l.Name)
		}
		return r.fail(api.Error, StageProbe, catalogue.LinkDown, p)
	}
	if s.failing == 0 || len(silent) == 0 {
		return r.ok(0)
	}
	var to []string
	for _, server := range silent {
		to = append(to, server.Address)
		c := catalogue.Candidate{Address: server.Address}
		if refused, is := o.refusal(server.Address, now); is {
			c.Reason = refused.Reason
		}
		p.Candidates = append(p.Candidates, c)
	}
	last, at := furthest(to, func(address string) (Refusal, bool) { return o.refusal(address, now) })
	last.explain(&p)
	p.Address = cmp.Or(p.Address, to[0])
	alone := !slices.ContainsFunc(silent, func(other Server) bool { return other.Name != silent[0].Name })
	if at == hopBeyond && alone && s.heard.IsZero() {
		return r.ok(0) // it may be that server's fault
	}
	if !s.heard.IsZero() {
		p.Age = max(0, now.Sub(s.heard))
	}
	if at >= hopRouter {
		r.Sure = api.Likely
	}
	r.Since = s.heard
	return r.fail(api.Error, StageProbe, hops()[at], p)
}

// silentServers are those that have answered no more since about when the peers were last heard,
// or never, as no peer; answers reports whether another has answered since.
func (o Own) silentServers(s standing, now time.Time) (silent []Server, answers bool) {
	for _, server := range o.STUN {
		switch {
		case server.Err == "" && !unansweredFor(server.Unanswered, now):
			answers = answers || server.At.After(s.heard)
		case server.Address == "":
		case server.At.IsZero() == s.heard.IsZero() && server.At.Sub(s.heard).Abs() < silentWith:
			silent = append(silent, server)
		}
	}
	return silent, answers
}

// refusal gives the one of an address that is no older than what is sent brings another.
func (o Own) refusal(address string, now time.Time) (Refusal, bool) {
	i := slices.IndexFunc(o.Refused, func(r Refusal) bool { return r.To == address && now.Sub(r.At) < refusalLife })
	if i < 0 {
		return Refusal{}, false
	}
	return o.Refused[i], true
}

// lastHeard is about when the peer was last heard, whatever shows it; zero for never.
func (f Facts) lastHeard() time.Time {
	if f.LastHandshake.IsZero() {
		return f.Probed
	}
	last := slices.MaxFunc([]time.Time{f.LastHandshake, f.Probed}, time.Time.Compare)
	if f.NoPath != "" && f.PathLost.After(last) {
		return f.PathLost
	}
	return last
}
