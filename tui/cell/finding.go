package cell

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/way"
)

// Finding is something that an operator should know about a peer.
type Finding struct {
	Glyph Cell
	// Subject names the peer and the part of it.
	Subject string
	// Check, Direction and Code are those of the check; empty if it is not from a check.
	Check, Direction, Code string
	// Title says in a few words what the code means, for the break of a path.
	Title string
	// Where is the stage, or the place on the path.
	Where string
	Cause string
	// Steps are what to do, unchanged: they may contain unprintable characters.
	Steps api.Steps
	// ofState: it is the reason for a peer's state.
	ofState bool
	// ofWay: it is where a path breaks.
	ofWay bool
	// urgency is that of a fault; 0 if it is not one by itself.
	urgency int
	// nth is its position among several faults, and of is their number; both are 0 if it is the
	// only one.
	nth, of int
}

// urgency orders faults by which to fix first, the highest first; 0 is no fault. A consequence of
// another fault does not count as one, see verdict.Correlate. Of independent faults the one with
// the wider effect comes first: errors before warnings, then those of this gateway, which affect
// all peers, then those of a tunnel, then those of a service. Last, a fault here comes before one
// at a peer.
func urgency(o api.Outcome, direction string, service bool) int {
	n := 1
	switch o {
	case api.Error:
		n += 6
	case api.Warning:
	default:
		return 0
	}
	switch {
	case service:
	case direction == api.DirectionOwn:
		n += 4
	default:
		n += 2
	}
	if direction != api.DirectionOutbound {
		n++
	}
	return n
}

// Order sorts findings by which to fix first. If there are several faults, each says which of how
// many it is. Findings that are not faults by themselves follow, in their order.
func Order(findings []Finding) []Finding {
	out := slices.Clone(findings)
	slices.SortStableFunc(out, func(a, b Finding) int { return b.urgency - a.urgency })
	n := 0
	for n < len(out) && out[n].urgency > 0 {
		n++
	}
	for i := 0; i < n && n > 1; i++ {
		out[i].nth, out[i].of = i+1, n
	}
	return out
}

// order says which of several faults this is.
func (f Finding) order() string {
	switch f.nth {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 of %d, fix this first · ", f.of)
	}
	return fmt.Sprintf("%d of %d · ", f.nth, f.of)
}

// Text returns everything but the fix.
func (f Finding) Text() string {
	return f.order() + colons(f.Subject, strings.TrimSpace(f.Code+" "+f.Where), f.Cause)
}

// OfPeersCheck reports whether it is from a check of the peer, and is not the break of a path.
func (f Finding) OfPeersCheck() bool {
	return f.Check != "" && f.Direction != api.DirectionOwn && !f.ofWay
}

// colons joins the non-empty parts.
func colons(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// Lines draws it: the subject and the finding, and the fix below. For a break, the place and the
// cause are on lines of their own.
func (f Finding) Lines(width int, p Paint) []string {
	var out []string
	if f.Title == "" {
		out = Wrap(f.Glyph.Text+" ", f.Text(), width, "  ")
	} else {
		out = Wrap(f.Glyph.Text+" ", f.order()+colons(f.Subject, strings.TrimSpace(f.Code+" "+f.Title)), width, "  ")
		out = append(out, wrapBehind("  where: ", f.Where, width)...)
		if f.Cause != "" {
			out = append(out, wrapBehind("  why:   ", f.Cause, width)...)
		}
	}
	if len(f.Steps) > 0 {
		label := "  fix: "
		if f.Title != "" {
			label = "  fix:   "
		}
		out = append(out, FixLines(label, f.Steps, width)...)
	}
	if rest, ok := strings.CutPrefix(out[0], f.Glyph.Text); ok {
		out[0] = p.Cell(f.Glyph) + rest
	}
	for i := range out { // A word without spaces may still be too wide.
		out[i] = Fit(out[i], width)
	}
	return out
}

// Findings returns all findings of a peer, those about its state first.
func Findings(p *api.PeerStatus) []Finding { return append(StateFindings(p), VerdictFindings(p)...) }

// FindingsOf returns the findings of several peers. Those that several have are listed once.
func FindingsOf(peers []api.PeerStatus) (out []Finding) {
	for i := range peers {
		for _, f := range Findings(&peers[i]) {
			same := slices.IndexFunc(out, func(o Finding) bool {
				return len(o.Steps) > 0 && o.Code == f.Code && o.Where == f.Where && o.Cause == f.Cause && slices.Equal(o.Steps, f.Steps)
			})
			if same < 0 {
				out = append(out, f)
				continue
			}
			out[same].Subject += ", " + f.Subject
		}
	}
	return out
}

// besideMost is how many problems are explained that are not in the verdicts on the peers' endpoints.
const besideMost = 3

// Beside returns the findings that are not in the verdicts on the peers' endpoints, errors first.
// If there are many, the last one sums up those that are not explained, and has no place in the order.
func Beside(problems []api.Check, peers []api.PeerStatus) (out []Finding) {
	others := OtherProblems(problems, peers)
	for _, c := range others[:min(besideMost, len(others))] {
		f, _ := CheckFinding(c)
		out = append(out, f)
	}
	if len(others) <= besideMost {
		return out
	}
	first, _ := CheckFinding(others[besideMost])
	var words []string
	for _, c := range others[besideMost:] {
		words = append(words, strings.TrimSpace(Printable(c.Code)+" "+Subject(c, true)))
	}
	return append(out, Finding{Glyph: first.Glyph, Subject: "also", Cause: Joined(words, ", "),
		Steps: api.Steps{{Text: "run `postern check`"}}})
}

// Named is a fault's code and its peer; an empty peer is this gateway.
type Named struct {
	Code, Peer string
	Outcome    api.Outcome
}

// Worst returns the fault in a status to fix first, and the number of other codes.
func Worst(s *api.Status) (worst Named, more int) {
	codes, most := map[string]bool{}, 0
	add := func(peer, code string, o api.Outcome, urgency int) {
		if code == "" || urgency == 0 {
			return
		}
		if codes[code] = true; urgency > most {
			worst, most = Named{code, peer, o}, urgency
		}
	}
	for i := range s.Problems {
		c := &s.Problems[i]
		add(c.Peer, c.Code, c.Verdict.Verdict, urgencyOf(c))
	}
	for i := range s.Peers {
		p := &s.Peers[i]
		for _, d := range []string{api.DirectionOutbound, api.DirectionInbound} {
			for _, target := range Endpoints() {
				if v := p.Reachability.On(d, target); v.Code != "" {
					now := way.See(p, d, target).Now
					add(p.Name, v.Code, now, urgency(now, d, target != api.ServiceGateway))
				}
			}
		}
	}
	return worst, max(0, len(codes)-1)
}

// OtherProblems returns the problems that are not in the verdicts on the peers' endpoints.
func OtherProblems(problems []api.Check, peers []api.PeerStatus) []*api.Check {
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

// CheckFinding returns a check's finding, if it is a warning or an error.
func CheckFinding(c *api.Check) (Finding, bool) {
	f, found := verdictFinding(&c.Verdict)
	f.Subject, f.Check, f.Direction, f.urgency = Subject(c, true), c.Name, c.Direction, urgencyOf(c)
	return f, found
}

func urgencyOf(c *api.Check) int {
	return urgency(c.Verdict.Verdict, c.Direction, way.ServiceOf(c) != "")
}

// NoFault stands where there is no finding of a peer that works.
func NoFault(p *api.PeerStatus) Finding {
	f := Finding{Glyph: Outcome(api.OK), Cause: "no fault found"}
	f.Glyph.Text = f.Glyph.Sign()
	if p.Path.Kind == api.PathRelay {
		f.Cause += "; its data goes over a relay" + indirect(p)
		f.Steps = api.Steps{{Text: "none is needed; for a direct path, forward a UDP port to one of the two gateways"},
			{Text: "see what the NAT here does", Command: "postern netcheck"}}
	}
	return f
}

// indirect says why there is no direct path, by the address that would most likely be on one.
func indirect(p *api.PeerStatus) string {
	for _, c := range p.Candidates {
		if c.State == "failed" && c.Reason != "" && c.Relay == "" && c.Source != api.SourceRelay && c.Source != api.SourceHost && c.Source != api.SourceLAN {
			return ", as " + Printable(c.Address) + " cannot be reached directly: " + Printable(c.Reason)
		}
	}
	return ""
}

// Wrong returns the break of the path to a peer and the findings that are not the same fault, in
// the order in which to fix them: several checks find a fault of the tunnel. Then the reason for
// the peer's state is left out, unless only a service fails, and so is a warning that this process
// had too little CPU time to judge, if the break is certain.
func Wrong(w *way.Way, findings []Finding) []Finding {
	if w.Break == nil {
		return Order(findings)
	}
	out := []Finding{BreakFinding(w)}
	tunnel := w.Break.At != way.Service
	for _, f := range findings {
		check := f.Check == out[0].Check && f.Direction == out[0].Direction
		same := f.Code == out[0].Code && (f.Cause == out[0].Cause || f.Code != "" && (tunnel || check))
		doubt := f.Code == string(catalogue.ProcessStarved) && w.Break.Confidence == api.Certain
		if !same && !doubt && (!f.ofState || !tunnel) {
			out = append(out, f)
		}
	}
	return Order(out)
}

// StateFindings returns the reason for a peer's state and its failed listeners.
func StateFindings(p *api.PeerStatus) []Finding {
	name := Printable(p.Name)
	var out []Finding
	switch {
	case p.State == api.StatePending && p.ApprovalFingerprint != "":
		f := Finding{Glyph: Cell{"◇", Wary}, Subject: name, Cause: "waits for approval; its key's fingerprint is " + Printable(p.ApprovalFingerprint)}
		if api.CheckName(p.Name) == nil { // Other names could mean something else in a shell.
			f.Steps = api.Steps{{Text: "compare it there"}, {Text: "approve it", Command: "postern peer approve " + name}}
		}
		out = append(out, f)
	case p.UnconfirmedSince != nil && p.Shown() == api.StateUnconfirmed:
		out = append(out, Finding{Glyph: Cell{"!", Wary}, Subject: name, Cause: "nothing sent since " + p.UnconfirmedSince.UTC().Format(time.TimeOnly) + " UTC was answered; the verdicts shown are older", ofState: true})
	case p.State != api.StateConnected && p.Reason != "":
		out = append(out, Finding{Glyph: Cell{"!", Wary}, Subject: name, Cause: Printable(p.Reason), ofState: true})
	}
	for _, l := range p.Local {
		if l.Error != "" {
			out = append(out, Finding{Glyph: Cell{"✗", Bad}, Subject: name, Cause: "no listener for " + Printable(l.Service) + " on " + Printable(l.Address) + ": " + Printable(l.Error),
				urgency: urgency(api.Error, api.DirectionOwn, true)})
		}
	}
	return out
}

// VerdictFindings returns the verdicts that are a warning or an error, outbound first.
func VerdictFindings(p *api.PeerStatus) []Finding {
	name := Printable(p.Name)
	var out []Finding
	directions := []struct {
		direction, arrow, prefix string
		targets                  *api.Targets
	}{{api.DirectionOutbound, " → ", "", &p.Reachability.Outbound}, {api.DirectionInbound, " ← ", "inbound-", &p.Reachability.Inbound}}
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
				f.Subject, f.Check, f.Direction = name+d.arrow+t.name, d.prefix+t.name, d.direction
				f.urgency = urgency(t.v.Verdict, d.direction, t.name != api.ServiceGateway)
				out = append(out, f)
			}
		}
	}
	return out
}

// ProblemFindings returns the problems that are not in the verdicts on peers' endpoints: those of
// the path to one peer, and those of the gateway itself, whichever the peer.
func ProblemFindings(problems []api.Check, peer string) []Finding {
	var ofPeer, own []Finding
	for i := range problems {
		c := &problems[i]
		f, ok := CheckFinding(c)
		switch {
		case !ok:
		case c.Peer == "":
			f.Subject = "this gateway, " + f.Subject
			own = append(own, f)
		case c.Peer == peer:
			ofPeer = append(ofPeer, f)
		}
	}
	return append(ofPeer, own...)
}

func verdictFinding(v *api.Verdict) (Finding, bool) {
	f := Finding{Code: Printable(v.Code), Where: Printable(v.Stage), Cause: Printable(v.Cause), Steps: api.StepsOf(v.Steps, v.Fix, v.Command)}
	switch v.Verdict {
	case api.Error:
		f.Glyph = Cell{"✗", Bad}
	case api.Warning:
		f.Glyph = Cell{"!", Wary}
	default:
		return Finding{}, false
	}
	return f, true
}
