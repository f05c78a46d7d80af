package cell

import (
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

// Finding is one thing that an operator should know of a peer.
type Finding struct {
	Glyph Cell
	// Subject names the peer and what of it.
	Subject string
	Cause   string
	Fix     string // a command, rule or value to paste
}

// Lines draws it: the cause with its subject, and the fix below.
func (f Finding) Lines(width int, p Paint) []string {
	out := Wrap(f.Glyph.Text+" ", f.Subject+": "+f.Cause, width, "  ")
	if f.Fix != "" {
		out = append(out, Wrap("  fix: ", f.Fix, width, "       ")...)
	}
	if rest, ok := strings.CutPrefix(out[0], f.Glyph.Text); ok {
		out[0] = p.Cell(f.Glyph) + rest
	}
	for i := range out { // A word without spaces may still be too wide.
		out[i] = Fit(out[i], width)
	}
	return out
}

// Findings are all of a peer's, what concerns its state first.
func Findings(p *api.PeerStatus) []Finding { return append(StateFindings(p), VerdictFindings(p)...) }

// FindingsOf are those of several peers. What is said of more than one is said once.
func FindingsOf(peers []api.PeerStatus) (out []Finding) {
	for i := range peers {
		for _, f := range Findings(&peers[i]) {
			same := slices.IndexFunc(out, func(o Finding) bool { return o.Fix != "" && o.Cause == f.Cause && o.Fix == f.Fix })
			if same < 0 {
				out = append(out, f)
				continue
			}
			out[same].Subject += ", " + f.Subject
		}
	}
	return out
}

// Beside sums up on one line what is wrong that the verdicts on the peers' endpoints do not tell;
// false where nothing is.
func Beside(problems []api.Check, peers []api.PeerStatus) (Finding, bool) {
	f := Finding{Fix: "postern check"}
	var words []string
	for _, c := range Untold(problems, peers) {
		if len(words) == 0 {
			f.Glyph, f.Subject = Cell{"!", Wary}, "also wrong"
			if c.Verdict.Verdict == api.Error {
				f.Glyph = Cell{"✗", Bad}
			}
		}
		words = append(words, strings.TrimSpace(Printable(c.Code)+" "+Subject(c, true)))
	}
	f.Cause = Joined(words, ", ")
	return f, len(words) > 0
}

// Untold are the problems that the verdicts on the peers' endpoints do not tell.
func Untold(problems []api.Check, peers []api.PeerStatus) []*api.Check {
	told := map[string]bool{}
	for i := range peers {
		r := &peers[i].Reachability
		for _, t := range []*api.Targets{&r.Outbound, &r.Inbound} {
			for _, v := range []*api.Verdict{&t.Auth, &t.APIServer, &t.Gateway} {
				told[v.Code+v.Cause] = true
			}
		}
	}
	var out []*api.Check
	for i := range problems {
		if c := &problems[i]; !told[c.Code+c.Cause] {
			out = append(out, c)
		}
	}
	return out
}

// CheckFinding is what a check found, if that is a warning or an error.
func CheckFinding(c *api.Check) (Finding, bool) {
	f, found := verdictFinding(&c.Verdict)
	f.Subject = Subject(c, true)
	return f, found
}

// Wrong is where the way to a peer breaks, and those findings that are not the same. Why the peer is in
// its state needs no more words then.
func Wrong(w *way.Way, p *api.PeerStatus, findings []Finding) []Finding {
	if w.Break == nil {
		return findings
	}
	out := []Finding{BreakFinding(w)}
	cause, reason := Printable(w.Break.Cause), Printable(p.Reason)
	for _, f := range findings {
		if f.Cause != reason && (cause == "" || !strings.Contains(f.Cause, cause)) {
			out = append(out, f)
		}
	}
	return out
}

// StateFindings are the reason of a peer's state and its listeners that failed.
func StateFindings(p *api.PeerStatus) []Finding {
	name := Printable(p.Name)
	var out []Finding
	switch {
	case p.State == api.StatePending && p.ApprovalFingerprint != "":
		out = append(out, Finding{Cell{"◇", Wary}, name, "waits for approval; its key's fingerprint is " + Printable(p.ApprovalFingerprint),
			"compare it there, then: postern peer approve " + name})
	case p.UnconfirmedSince != nil && p.Shown() == api.StateUnconfirmed:
		out = append(out, Finding{Cell{"!", Wary}, name, "nothing sent since " + p.UnconfirmedSince.UTC().Format(time.TimeOnly) + " UTC was answered; the verdicts shown are older", ""})
	case p.State != api.StateConnected && p.Reason != "":
		out = append(out, Finding{Cell{"!", Wary}, name, Printable(p.Reason), ""})
	}
	for _, l := range p.Local {
		if l.Error != "" {
			out = append(out, Finding{Cell{"✗", Bad}, name, "no listener for " + Printable(l.Service) + " on " + Printable(l.Address) + ": " + Printable(l.Error), ""})
		}
	}
	return out
}

// VerdictFindings are the verdicts that are a warning or an error, outbound first.
func VerdictFindings(p *api.PeerStatus) []Finding {
	name := Printable(p.Name)
	var out []Finding
	directions := []struct {
		arrow   string
		targets *api.Targets
	}{{" → ", &p.Reachability.Outbound}, {" ← ", &p.Reachability.Inbound}}
	for _, d := range directions {
		for _, t := range []struct {
			name string
			v    *api.Verdict
		}{
			{api.ServiceAuth, &d.targets.Auth},
			{api.ServiceAPIServer, &d.targets.APIServer},
			{api.ServiceGateway, &d.targets.Gateway},
		} {
			if f, ok := verdictFinding(t.v); ok {
				f.Subject = name + d.arrow + t.name
				out = append(out, f)
			}
		}
	}
	return out
}

// ProblemFindings are what is wrong beside the verdicts on peers' endpoints: with the way to one
// peer, and, whichever that is, with the gateway itself.
func ProblemFindings(problems []api.Check, peer string) []Finding {
	var ofPeer, own []Finding
	for i := range problems {
		c := &problems[i]
		f, ok := verdictFinding(&c.Verdict)
		switch {
		case !ok:
		case c.Peer == "":
			f.Subject = "this gateway, " + Subject(c, true)
			own = append(own, f)
		case c.Peer == peer:
			f.Subject = Subject(c, true)
			ofPeer = append(ofPeer, f)
		}
	}
	return append(ofPeer, own...)
}

func verdictFinding(v *api.Verdict) (Finding, bool) {
	f := Finding{Fix: Printable(v.Fix)}
	switch v.Verdict {
	case api.Error:
		f.Glyph = Cell{"✗", Bad}
	case api.Warning:
		f.Glyph = Cell{"!", Wary}
	default:
		return Finding{}, false
	}
	words := []string{}
	for _, w := range []string{v.Code, v.Stage} {
		if w != "" {
			words = append(words, Printable(w))
		}
	}
	f.Cause = strings.Join(words, " ")
	if v.Cause != "" {
		if f.Cause != "" {
			f.Cause += ": "
		}
		f.Cause += Printable(v.Cause)
	}
	return f, true
}
