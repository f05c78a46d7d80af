package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// Targets renders the report for the gateway that it is about, and that reads it. arrived
// is when the report came. What is too old is unknown, and says so.
func (r Report) Targets(reader Reader, arrived, now time.Time) api.Targets {
	return api.Targets{
		Auth:      r.render(api.ServiceAuth, reader, arrived, now),
		APIServer: r.render(api.ServiceAPIServer, reader, arrived, now),
		Gateway:   r.render(api.ServiceGateway, reader, arrived, now),
	}
}

// Unknown are the verdicts of a peer that has told nothing.
func Unknown(cause, fix string) api.Targets {
	v := api.Verdict{Verdict: api.Unknown, Cause: cause, Fix: fix}
	return api.Targets{Auth: v, APIServer: v, Gateway: v}
}

func (r Report) render(target string, reader Reader, arrived, now time.Time) api.Verdict {
	reporter := reader.Peer
	v, found := r.verdict(target)
	if !found {
		return api.Verdict{Verdict: api.Unknown, Cause: fmt.Sprintf("the report of %s says nothing of %s", reporter, target),
			Fix: askThere(reporter)}
	}
	checked := arrived.Add(-v.Age).UTC()
	out := api.Verdict{Verdict: v.Outcome, Stage: v.Stage, RTTSeconds: v.RTT.Seconds(), CheckedAt: &checked, Via: check.ViaInBand}
	if age := now.Sub(checked); age > StaleAfter {
		out.Verdict, out.Stage, out.RTTSeconds = api.Unknown, "", 0
		out.Cause = fmt.Sprintf("what %s reports is %s old (then: %s)", reporter, age.Round(time.Minute), then(v))
		out.Fix = askThere(reporter)
		return out
	}
	switch {
	case v.Outcome == api.OK:
	case v.Outcome == api.Unknown:
		out.Cause, out.Fix = r.why(target, reporter)
	case v.Code == "":
		out.Cause, out.Fix = fmt.Sprintf("%s reports this without saying why", reporter), askThere(reporter)
	case !about(target, v.Code):
		out.Verdict, out.Stage = api.Unknown, ""
		out.Cause = fmt.Sprintf("%s reports %s, which is not about reaching %s here", reporter, v.Code, target)
		out.Fix = askThere(reporter)
	default:
		if d, ok := reader.denied(v.Code, target); ok {
			d.CheckedAt, d.Via = out.CheckedAt, out.Via
			return d
		}
		if out.Verdict == api.Off { // a word for what is not offered, and for nothing else
			out.Verdict = api.Unknown
		}
		reader.explain(&out, v.Code, target, v.Params.Params(arrived))
	}
	return out
}

func (r Report) verdict(target string) (Verdict, bool) {
	for _, v := range r.Verdicts {
		if v.Target == target {
			return v, true
		}
	}
	return Verdict{}, false
}

// then is what a verdict was.
func then(v Verdict) string {
	if v.Code != "" && about(v.Target, v.Code) {
		return string(v.Outcome) + ", " + string(v.Code)
	}
	return string(v.Outcome)
}

// why explains what the writer could not tell: most often it did not try, because
// something fails that comes before.
func (r Report) why(target, reporter string) (cause, fix string) {
	for _, before := range []string{api.ServiceGateway, api.ServiceAuth} {
		if before == target {
			break
		}
		if v, found := r.verdict(before); found && v.Outcome == api.Error {
			return fmt.Sprintf("%s does not know while %s fails for it", reporter, before), fmt.Sprintf("fix %s first", before)
		}
	}
	return fmt.Sprintf("%s could not tell", reporter), askThere(reporter)
}

func askThere(reporter string) string { return fmt.Sprintf("run `postern check` at %s", reporter) }

// about reports whether a code can say something about reaching a target inside the tunnel,
// as seen from a peer. What else goes wrong at the peer is its own affair, and what goes
// wrong here it cannot know. Reports are of no check outside the tunnel, whose settings are
// the peer's; auth inside has no TLS.
func about(target string, c catalogue.Code) bool {
	switch c {
	case catalogue.TicketAlarm, catalogue.StunUnreachable, catalogue.TurnUnreachable, catalogue.ClockSkew: // our own affairs
		return false
	case catalogue.AuthURLUnreachable, catalogue.AuthTokenRejected: // of a URL of theirs
		return false
	}
	ranges := map[string][]string{
		api.ServiceGateway:   {"PST01", "PST04", "PST06"},
		api.ServiceAuth:      {"PST02"},
		api.ServiceAPIServer: {"PST030", "PST05"},
	}
	for _, prefix := range ranges[target] {
		if strings.HasPrefix(string(c), prefix) {
			return true
		}
	}
	return false
}
