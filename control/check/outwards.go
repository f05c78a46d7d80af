package check

import (
	"cmp"
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/special"
)

// NameNetwork is the check of what all outbound packets need: a link, a route, and someone outside
// who answers.
const NameNetwork = "network"

// NameKey is the check of whether another gateway runs with this one's key.
const NameKey = "key"

// ownKey judges the peers' claims that a gateway with this one's key started later, which they
// follow. A peer claims it for minutes after the other has stopped, and an older one for as long as it
// runs, so it counts only while the peer is not reached. Without a claim there is no check.
func ownKey(o Own, s standing, now time.Time) []verdict.Finding {
	said := o.Superseded
	if said.At.IsZero() || now.Sub(said.At) >= evidenceLife || !slices.Contains(s.unreached, said.By) {
		return nil
	}
	p := catalogue.Params{Inbound: true}
	p.PeerName, p.Seen = said.By, said.At
	return []verdict.Finding{beginOwn(NameKey).fail(api.Error, StageProbe, catalogue.KeyElsewhere, p)}
}

// NameResolver is the check of this host's name servers.
const NameResolver = "resolver"

// resolver checks this host's name servers by the names that got no answer: those of STUN servers,
// and of peers that have no other address. Without any there is no check.
func resolver(root fs.FS, o Own, s standing) []verdict.Finding {
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
	if root != nil {
		var err error
		if p.Resolvers, err = nameServers(root); len(p.Resolvers) == 0 {
			p.Failure = catalogue.FailureMissing
		}
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			p.Detail = failed.Err.Error()
		}
	}
	return []verdict.Finding{r.fail(api.Error, StageResolve, catalogue.ResolverSilent, p)}
}

// mostNameServers is how many of them package net asks, as resolv.conf(5) says (MAXNS).
const mostNameServers = 3

// nameServers returns the name servers of resolv.conf that package net asks. If there is none, it
// asks this host itself.
func nameServers(root fs.FS) ([]string, error) {
	data, err := fs.ReadFile(root, "etc/resolv.conf")
	var out []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" && len(out) < mostNameServers {
			if _, err := netip.ParseAddr(f[1]); err == nil {
				out = append(out, f[1])
			}
		}
	}
	return out, err
}

// hop is how far a packet got on its way out of this host. If nothing gets further, that is the
// root, and what lies beyond is unknown.
type hop int

const (
	hopFails     hop = iota // this host fails to send
	hopRoute                // this host has no route
	hopProhibits            // a rule of this host prohibits it
	hopNeighbour            // the next hop does not answer this host
	hopRouter               // a router on the way rejects it
	hopBeyond               // there is no error, or one from the destination
)

// hops are the codes for where packets end.
func hops() map[hop]catalogue.Code {
	return map[hop]catalogue.Code{
		hopFails: catalogue.SendFails, hopRoute: catalogue.NoRoute, hopProhibits: catalogue.SendProhibited, hopNeighbour: catalogue.NextHopSilent,
		hopRouter: catalogue.RouterRefuses, hopBeyond: catalogue.NothingAnswers,
	}
}

// hop returns where a refusal happened.
func (r Refusal) hop() hop {
	switch {
	case !r.Here && r.Reason == portUnreachable:
		return hopBeyond
	case !r.Here:
		return hopRouter
	case r.Reason == noBuffers:
		return hopFails
	case r.Reason == networkUnreachable:
		return hopRoute
	case r.Reason == hostUnreachable:
		return hopNeighbour
	}
	return hopProhibits
}

// furthest returns the refusal of the packet that got furthest among those to the addresses, and
// where that was.
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

// refusal returns the one for an address that still explains the failure.
func (e evidence) refusal(address string) (Refusal, bool) {
	i := slices.IndexFunc(e.Unreachable, func(r Refusal) bool { return r.To == address && e.refuses(r) })
	if i < 0 {
		return Refusal{}, false
	}
	return e.Unreachable[i], true
}

// sentTo returns the peer's addresses that this host's own socket sends to: those that anyone can
// dial or, if there are none, all. A private address may be in any network.
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

// ends reports whether all packets to the peer end at a hop before its own. To a private address
// that is in no network of ours nothing else can happen: the address is wrong.
func ends(at hop) func(evidence, *catalogue.Params) bool {
	return func(e evidence, p *catalogue.Params) bool {
		if elsewhere := *p; e.private(&elsewhere) {
			return false
		}
		r, h := furthest(e.sentTo(), e.refusal)
		r.explain(p)
		if e.unanswered(e.HeardUnanswered.At) {
			p.From = e.HeardUnanswered.From
		}
		return h == at
	}
}

// explain adds a refusal to a fault's parameters.
func (r Refusal) explain(p *catalogue.Params) {
	p.Address, p.By, p.Seen, p.Detail = r.To, r.By, r.At, r.Reason
}

// silentWith is how far apart two silences may begin and still have one cause: a server is queried
// every 25 s, and an idle path every 23 s.
const silentWith = time.Minute

// network checks what all outbound packets need. If a peer works, or a server has answered since
// the others fell silent, it is fine: links that are unknown here may lead outside.
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
	if s.working+s.answering > 0 || answers {
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
	if at != hopRouter {
		r.Rests = []string{verdict.Own(NameSending)}
	}
	r.Since = s.heard
	return r.fail(api.Error, StageProbe, hops()[at], p)
}

// silentServers returns those that have not answered since about when the peers were last heard, or
// never, like the peers; answers reports whether another has answered since.
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

// refusal returns the one for an address, unless it is older than the interval of the packets that
// cause it.
func (o Own) refusal(address string, now time.Time) (Refusal, bool) {
	i := slices.IndexFunc(o.Refused, func(r Refusal) bool { return r.To == address && now.Sub(r.At) < refusalLife })
	if i < 0 {
		return Refusal{}, false
	}
	return o.Refused[i], true
}

// lastHeard is roughly when the peer was last heard, by any evidence; zero for never.
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
