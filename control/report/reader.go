package report

import (
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// mostMTU bounds the packet size that a report can put into a fix: a larger link than Ethernet is
// not narrow. The minimum is the catalogue's, that of IPv6.
const mostMTU = 1500

// Reader is the gateway that reads a report.
type Reader struct {
	// Peer is the reader's name for the writer.
	Peer string
	// Offers are the services that the writer may reach here; nil if unknown.
	Offers []string
	// User is the peer's user at this gateway's API server; empty if it has none.
	User string
	// Own is called if something fails, and returns what is known about this gateway; nil means
	// nothing.
	Own func() catalogue.Shown
	// Reached is called if something fails, and returns the address at which the reader reaches the
	// writer, as IP:port; empty if it does not. nil means that this is unknown.
	Reached func() string
}

// Without returns the findings of a reader without a report, with the reason as a note.
func (r Reader) Without(why catalogue.Code) []verdict.Finding {
	return r.each(func(f verdict.Finding) verdict.Finding { return note(f, why) })
}

// each returns findings for the three targets, initially unknown.
func (r Reader) each(find func(verdict.Finding) verdict.Finding) []verdict.Finding {
	var out []verdict.Finding
	for _, target := range targets {
		out = append(out, find(verdict.Finding{Name: verdict.Inbound(target), Target: target, Peer: r.Peer, Direction: api.DirectionInbound}))
	}
	return out
}

// note turns a finding into a note that says why there is no verdict.
func note(f verdict.Finding, why catalogue.Code) verdict.Finding {
	f.Outcome, f.Code, f.Stage = api.Unknown, why, ""
	return f
}

// Findings returns what the writer found about the reader. arrived is when the report arrived.
// Outdated verdicts become unknown, with a note.
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
			if f.Code == catalogue.ReportUnsure { // usually it was not tried
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
	case v.Code == catalogue.Intermittent:
		return reader.intermittent(f, v)
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

// take converts a verdict with a code to a finding. Its values are marked as the writer's
// statements.
func (r Reader) take(f verdict.Finding, v Verdict) verdict.Finding {
	if off, disputed, is := r.denied(v.Code, f.Target); is {
		f.Outcome, f.Code, f.Stage, f.RTT = api.Off, off, "", 0
		f.Args = &catalogue.Params{Inbound: true, Peer: r.Peer, Service: f.Target, Disputed: disputed}
		return f
	}
	if f.Outcome == api.Off { // this outcome is only for services that are not offered
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

// intermittent converts a verdict that something works, but comes and goes. It is ok if the code that
// it quotes cannot be about the target, or is about what this gateway decides, or if its counts
// cannot be.
func (r Reader) intermittent(f verdict.Finding, v Verdict) verdict.Finding {
	f.Outcome = api.OK
	p := v.Params.Params(f.Heard)
	root := p.RootCode
	if _, _, decided := r.denied(root, f.Target); decided || p.Failures < 1 || p.Failures > p.Checks || root == catalogue.Intermittent || !about(f.Target, root) {
		f.Stage = ""
		return f
	}
	f.Outcome = api.Warning
	return r.take(f, v)
}

// told returns the parameters as seen by the reader: the writer's NAT is the peer's. Own and Port
// are never those of the writer. Of the addresses at which the writer tried to reach this
// gateway, only its own are kept.
func (r Reader) told(target string, p catalogue.Params, own catalogue.Shown) catalogue.Params {
	p.Heard, p.Inbound, p.Peer, p.Service, p.User = true, true, r.Peer, target, r.User
	p.Own, p.Set, p.Port, p.NAT, p.PeerNAT = own.SeenAs(), own.Set(), own.Port, own.NAT, p.NAT
	p.MTU = min(p.MTU, mostMTU)
	if r.Reached != nil {
		p.Reached = r.Reached()
	}
	p.Endpoints = slices.DeleteFunc(p.Endpoints, func(a string) bool { return !own.Has(a) })
	p.Candidates = slices.DeleteFunc(p.Candidates, func(c catalogue.Candidate) bool { return !own.Has(c.Address) })
	return p
}

// denied handles a report that the writer may not reach something here, which is decided here. It
// returns the code, and whether the writer is wrong as far as is known. is is false if the code
// is about something else, or if the services are granted and their use fails.
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

// failing returns the failing checks of the targets before this one.
func (r Report) failing(target string) (out []string) {
	for _, before := range targets[:min(2, slices.Index(targets, target))] {
		if v, found := r.verdict(before); found && v.Outcome == api.Error {
			out = append(out, verdict.Inbound(before))
		}
	}
	return out
}

// about reports whether a code can say something about reaching a target inside the tunnel, as
// seen from a peer. The peer's other problems do not concern this gateway, and about problems
// here it knows nothing. Reports do not cover checks outside the tunnel, which depend on the
// peer's settings. auth inside the tunnel has no TLS.
func about(target string, c catalogue.Code) bool {
	switch c {
	case catalogue.TicketAlarm, catalogue.StunUnreachable, catalogue.StunOutvoted, catalogue.TurnUnreachable, catalogue.ProxyRefuses, catalogue.ClockSkew: // our own affairs
		return false
	case catalogue.AuthURLUnreachable, catalogue.AuthTokenRejected: // about a URL of theirs
		return false
	}
	ranges := map[string][]string{
		api.ServiceGateway:   {"PST01", "PST04", "PST06"},
		api.ServiceAuth:      {"PST02"},
		api.ServiceAPIServer: {"PST030", "PST05"},
	}
	return slices.ContainsFunc(ranges[target], func(prefix string) bool { return strings.HasPrefix(string(c), prefix) })
}
