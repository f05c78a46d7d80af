package report

import (
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// mostMTU bounds the packet size that a report can bring into a fix: what is wider than
// Ethernet is no narrow link. The least is the table's, which goes no lower than IPv6 may.
const mostMTU = 1500

// Reader is the gateway that reads a report, as it knows itself.
type Reader struct {
	// Peer is what the writer is called here.
	Peer string
	// Offers are the services that the writer may reach here, nil if that is unknown.
	Offers []string
	// User is the peer's user at this gateway's API server; empty when it has none.
	User string
	// Own is called when something fails, for what is known about this gateway; nil knows nothing.
	Own func() catalogue.Shown
}

// Without are the findings of a reader that has no report, for the reason that a note gives.
func (r Reader) Without(why catalogue.Code) []verdict.Finding {
	return r.each(func(f verdict.Finding) verdict.Finding { return note(f, why) })
}

// each makes the findings on the three targets of which nothing is known yet.
func (r Reader) each(find func(verdict.Finding) verdict.Finding) []verdict.Finding {
	var out []verdict.Finding
	for _, target := range targets {
		out = append(out, find(verdict.Finding{Name: verdict.Inbound(target), Target: target, Peer: r.Peer, Direction: api.DirectionInbound}))
	}
	return out
}

// note makes a finding one that says why there is none.
func note(f verdict.Finding, why catalogue.Code) verdict.Finding {
	f.Outcome, f.Code, f.Stage = api.Unknown, why, ""
	return f
}

// Findings are what the writer found of the gateway that the report is about, and that reads
// it. arrived is when the report came. What is too old is unknown, and says so.
func (r Report) Findings(reader Reader, arrived, now time.Time) []verdict.Finding {
	return reader.each(func(f verdict.Finding) verdict.Finding {
		f.Heard = arrived
		if v, found := r.verdict(f.Target); found {
			f = r.finding(f, v, reader, now)
		} else {
			f = note(f, catalogue.ReportIncomplete).With(func(p *catalogue.Params) { p.Service = f.Target })
		}
		if before := r.failing(f.Target); f.Outcome == api.Unknown && len(before) > 0 {
			f.Rests = before
			if f.Code == catalogue.ReportUnsure { // most often it was not tried
				f.Code = catalogue.NotTried
				f = f.With(func(p *catalogue.Params) { p.Root = before[0] })
			}
		}
		return f
	})
}

func (r Report) finding(f verdict.Finding, v Verdict, reader Reader, now time.Time) verdict.Finding {
	f.Outcome, f.Stage, f.RTT, f.At, f.Via = v.Outcome, v.Stage, v.RTT, f.Heard.Add(-v.Age).UTC(), verdict.ViaInBand
	quoted := catalogue.Params{Peer: reader.Peer, Service: f.Target}
	quoted.RootOutcome = string(v.Outcome)
	if v.Outcome != api.OK && about(f.Target, v.Code) {
		quoted.RootCode = v.Code
	}
	switch age := now.Sub(f.At); {
	case age > StaleAfter:
		f.RTT, quoted.Age, f.Args = 0, age.Round(time.Minute), &quoted
		return note(f, catalogue.ReportStale)
	case v.Outcome == api.OK:
	case v.Outcome == api.Unknown:
		f.Code = catalogue.ReportUnsure
	case v.Code == "":
		f.Code = catalogue.ReportBare
	case quoted.RootCode == "":
		quoted.RootCode, f.Args = v.Code, &quoted
		return note(f, catalogue.ReportAstray)
	default:
		return reader.take(f, v)
	}
	return f
}

// take makes a finding of a verdict with a code. The values are the writer's word, and so marked.
func (r Reader) take(f verdict.Finding, v Verdict) verdict.Finding {
	if off, disputed, is := r.denied(v.Code, f.Target); is {
		f.Outcome, f.Code, f.Stage, f.RTT = api.Off, off, "", 0
		f.Args = &catalogue.Params{Inbound: true, Peer: r.Peer, Service: f.Target, Disputed: disputed}
		return f
	}
	if f.Outcome == api.Off { // a word for what is not offered, and for nothing else
		f.Outcome = api.Unknown
	}
	var own catalogue.Shown
	if r.Own != nil {
		own = r.Own()
	}
	p := r.told(f.Target, v.Params.Params(f.Heard), own)
	f.Code, f.Args = v.Code, &p
	if f.Faulty() {
		f.Rests = []string{verdict.Own(verdict.Upstream(f.Target))}
	}
	return f
}

// told are the parameters as they are read here. What has two ends changes them: the
// writer's NAT is the peer's. Own and Port are never a writer's, and of the addresses at
// which it sought this gateway only those are named that are.
func (r Reader) told(target string, p catalogue.Params, own catalogue.Shown) catalogue.Params {
	p.Heard, p.Inbound, p.Peer, p.Service, p.User = true, true, r.Peer, target, r.User
	p.Own, p.Set, p.Port, p.NAT, p.PeerNAT = own.SeenAs(), own.Set(), own.Port, own.NAT, p.NAT
	p.MTU = min(p.MTU, mostMTU)
	p.Endpoints = slices.DeleteFunc(p.Endpoints, func(a string) bool { return !own.Has(a) })
	p.Candidates = slices.DeleteFunc(p.Candidates, func(c catalogue.Candidate) bool { return !own.Has(c.Address) })
	return p
}

// denied answers a report that the writer may not reach something here: what it may is
// decided here, and known. It gives the code of that, and whether the writer is wrong as far as
// is known. is is false where the code is about something else, or the services are granted and
// what fails is how they are used.
func (r Reader) denied(c catalogue.Code, target string) (off catalogue.Code, disputed, is bool) {
	needs := []string{target}
	switch c {
	case catalogue.AuthOff, catalogue.APIServerOff, catalogue.AuthDenied, catalogue.APIServerUnauthorized, catalogue.APIServerForbidden:
	case catalogue.IdentityMissing:
		needs = append(needs, api.ServiceAuth)
	default:
		return "", false, false
	}
	off = catalogue.APIServerOff
	if target == api.ServiceAuth {
		off = catalogue.AuthOff
	}
	missing := r.Offers != nil && slices.ContainsFunc(needs, func(service string) bool { return !slices.Contains(r.Offers, service) })
	return off, !missing, missing || c == off
}

func (r Report) verdict(target string) (Verdict, bool) {
	if i := slices.IndexFunc(r.Verdicts, func(v Verdict) bool { return v.Target == target }); i >= 0 {
		return r.Verdicts[i], true
	}
	return Verdict{}, false
}

// failing are the checks of the targets before another one that fail.
func (r Report) failing(target string) (out []string) {
	for _, before := range targets[:min(2, slices.Index(targets, target))] {
		if v, found := r.verdict(before); found && v.Outcome == api.Error {
			out = append(out, verdict.Inbound(before))
		}
	}
	return out
}

// about reports whether a code can say something about reaching a target inside the tunnel,
// as seen from a peer. What else goes wrong at the peer is its own affair, and what goes
// wrong here it cannot know. Reports are of no check outside the tunnel, whose settings are
// the peer's; auth inside has no TLS.
func about(target string, c catalogue.Code) bool {
	switch c {
	case catalogue.TicketAlarm, catalogue.StunUnreachable, catalogue.StunOutvoted, catalogue.TurnUnreachable, catalogue.ProxyRefuses, catalogue.ClockSkew: // our own affairs
		return false
	case catalogue.AuthURLUnreachable, catalogue.AuthTokenRejected: // of a URL of theirs
		return false
	}
	ranges := map[string][]string{
		api.ServiceGateway:   {"PST01", "PST04", "PST06"},
		api.ServiceAuth:      {"PST02"},
		api.ServiceAPIServer: {"PST030", "PST05"},
	}
	return slices.ContainsFunc(ranges[target], func(prefix string) bool { return strings.HasPrefix(string(c), prefix) })
}
