package tui

import (
	"strings"

	"github.com/postern-dev/postern/control/api"
)

// finding is one thing that an operator should know of a peer.
type finding struct {
	glyph string
	style style
	// subject names the peer and what of it.
	subject string
	cause   string
	fix     string // a command, rule or value to paste
}

// lines draws it: the cause with its subject, and the fix below.
func (f finding) lines(width int, p paint) []string {
	out := wrap(f.glyph+" ", f.subject+": "+f.cause, width, "  ")
	if f.fix != "" {
		out = append(out, wrap("  fix: ", f.fix, width, "       ")...)
	}
	if rest, ok := strings.CutPrefix(out[0], f.glyph); ok {
		out[0] = p.text(f.style, f.glyph) + rest
	}
	for i := range out { // A word without spaces may still be too wide.
		out[i] = fit(out[i], width)
	}
	return out
}

// findings are the reasons of a peer's state, its listeners that failed, and every
// verdict that is a warning or an error, outbound first.
func findings(p *api.PeerStatus) []finding {
	name := Printable(p.Name)
	var out []finding
	switch {
	case p.State == api.StatePending && p.ApprovalFingerprint != "":
		out = append(out, finding{"◇", wary, name, "waits for approval; its key's fingerprint is " + Printable(p.ApprovalFingerprint),
			"compare it there, then: postern peer approve " + name})
	case p.State != api.StateConnected && p.Reason != "":
		out = append(out, finding{"!", wary, name, Printable(p.Reason), ""})
	}
	for _, l := range p.Local {
		if l.Error != "" {
			out = append(out, finding{"✗", bad, name, "no listener for " + Printable(l.Service) + " on " + Printable(l.Address) + ": " + Printable(l.Error), ""})
		}
	}
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
				f.subject = name + d.arrow + t.name
				out = append(out, f)
			}
		}
	}
	return out
}

func verdictFinding(v *api.Verdict) (finding, bool) {
	f := finding{fix: Printable(v.Fix)}
	switch v.Verdict {
	case api.Error:
		f.glyph, f.style = "✗", bad
	case api.Warning:
		f.glyph, f.style = "!", wary
	default:
		return finding{}, false
	}
	words := []string{}
	for _, w := range []string{v.Code, v.Stage} {
		if w != "" {
			words = append(words, Printable(w))
		}
	}
	f.cause = strings.Join(words, " ")
	if v.Cause != "" {
		if f.cause != "" {
			f.cause += ": "
		}
		f.cause += Printable(v.Cause)
	}
	return f, true
}
