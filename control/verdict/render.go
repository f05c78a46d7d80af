package verdict

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Verdict renders a finding as text. If it follows from another, the fix is the root's.
func (f Finding) Verdict() api.Verdict {
	v := api.Verdict{Verdict: f.Outcome, Code: string(f.Fault()), Stage: f.Stage, RTTSeconds: f.RTT.Seconds(), Via: f.Via}
	if at := f.At; !at.IsZero() {
		v.CheckedAt = &at
	}
	own := f.words()
	v.Place, v.Cause, v.Steps = own.place, own.cause, own.steps
	v.Fix, v.Command = v.Steps.String(), v.Steps.Command()
	if f.Because == nil {
		v.By = f.Params().By
		if f.Faulty() && f.Direction != api.DirectionInbound {
			v.Confidence = cmp.Or(f.Sure, api.Certain)
		}
		return v
	}
	root, p := f.Because.words(), catalogue.Params{}
	p.Root, p.RootCode = f.Because.Name, f.Because.Code.Fault()
	if f.Code == catalogue.NotTried {
		p.Beside, p.BesideAddress = f.Params().Beside, f.Params().BesideAddress
	}
	v.Place = ""
	v.Cause, v.Steps = catalogue.Render(catalogue.NotTried, p)
	if f.Code != catalogue.NotTried {
		v.Cause += ": " + own.cause
	}
	v.Steps = append(v.Steps, root.steps...)
	v.Fix, v.Command = v.Steps.String(), v.Steps.Command()
	return v
}

// said caches a finding's own text. It is rendered on demand and kept, since long-lived findings
// are shown again and again.
type said struct {
	once         sync.Once
	place, cause string
	steps        api.Steps
}

func (f Finding) words() *said {
	w := f.said
	if w == nil {
		w = &said{}
	}
	w.once.Do(func() {
		if p := f.Params(); f.Code != "" && (f.Code != catalogue.NotTried || p.Root != "") {
			w.cause, w.steps = catalogue.Render(f.Code, p)
			w.place = catalogue.Place(f.Code, p)
		}
	})
	return w
}

// Check returns a finding in the form of check reports.
func (f Finding) Check() api.Check {
	c := api.Check{Name: f.Name, Peer: f.Peer, Target: f.Target, Direction: f.Direction, Verdict: f.Verdict(), Stages: []api.CheckStage{}}
	if f.Because != nil {
		c.DependsOn = f.Because.Ref()
	}
	stages := f.Stages
	if f.Direction == api.DirectionInbound && f.Stage != "" { // all that a report says about them
		stages = []Stage{{Name: f.Stage, Outcome: f.Outcome}}
	}
	for _, s := range stages {
		c.Stages = append(c.Stages, api.CheckStage{Stage: s.Name, Verdict: s.Outcome, Seconds: s.Took.Seconds(), Detail: s.Detail, Via: f.Via})
	}
	return c
}

// Targets returns the verdicts on a peer's three endpoints, using the checks that name selects for
// them.
func Targets(list []Finding, name func(target string) string) api.Targets {
	of := func(target string) api.Verdict {
		f, found := Find(list, name(target))
		if !found {
			f = NotChecked("", name(target), target)
		}
		return f.alone()
	}
	return api.Targets{Auth: of(api.ServiceAuth), APIServer: of(api.ServiceAPIServer), Gateway: of(api.ServiceGateway)}
}

// alone returns the verdict for a view of one peer: if it follows from a fault of this gateway,
// that fault is shown instead.
func (f Finding) alone() api.Verdict {
	if f.Because == nil || f.Because.Direction != api.DirectionOwn {
		return f.Verdict()
	}
	root, v := f.Because.Verdict(), f.Verdict()
	root.CheckedAt, root.Via = v.CheckedAt, v.Via
	return root
}

// View builds the view of peers in a status: three endpoints in each direction and no more.
type View struct {
	at       time.Time
	own      []Finding
	problems []api.Check
}

// NewView returns the view of a gateway with its own findings.
func NewView(at time.Time, own []Finding) *View { return &View{at: at, own: slices.Clone(own)} }

// Add returns the view of a peer. used selects the checks of its endpoints.
func (v *View) Add(p Peer, used func(target string) string) api.Reachability {
	out, in := Correlate(v.at, v.own, p.Outbound, p.Inbound)
	raise(v.own, out)
	v.beside(out, used)
	v.beside(in, Inbound)
	return Reach(out, in, used)
}

// Reach returns how a peer is reached, by its correlated findings. used selects the checks of its
// endpoints.
func Reach(out, in []Finding, used func(target string) string) api.Reachability {
	r := api.Reachability{Outbound: Targets(out, used), Inbound: Targets(in, Inbound)}
	worst := func(list []Finding, shown func(target string) string) {
		for _, f := range list {
			if f.besides(shown) && f.Target == api.ServiceGateway && r.Beside != api.Error {
				r.Beside = f.Outcome
			}
		}
	}
	worst(out, used)
	worst(in, Inbound)
	return r
}

// besides reports whether a finding is a fault that belongs to none of the endpoints, of which
// shown selects the checks; nil if there are none.
func (f Finding) besides(shown func(target string) string) bool {
	return f.Faulty() && (shown == nil || f.Name != shown(f.Target))
}

// beside keeps problems that belong to none of the endpoints.
func (v *View) beside(list []Finding, shown func(target string) string) {
	for _, f := range list {
		if f.besides(shown) {
			c := f.Check()
			c.Stages = []api.CheckStage{}
			v.problems = append(v.problems, c)
		}
	}
}

// Problems returns the remaining problems once all peers are added, errors first: those of this
// gateway, and of the paths to peers.
func (v *View) Problems() []api.Check {
	of := v.problems
	v.problems = nil
	v.beside(v.own, nil)
	all := append(v.problems, of...)
	slices.SortStableFunc(all, func(a, b api.Check) int { // "error" comes before "warning"
		return cmp.Compare(a.Verdict.Verdict, b.Verdict.Verdict)
	})
	return all
}

// Peer holds the findings about one peer.
type Peer struct {
	Name              string
	Outbound, Inbound []Finding
}

// Report correlates and renders findings: this gateway's first, then peer by peer. If the report is
// about one peer (only), it includes this gateway's findings that something there follows from. An
// own finding that makes a peer here unreachable is an error even if it is a warning by itself.
func Report(gateway string, at time.Time, own []Finding, peers []Peer, only bool) api.CheckReport {
	r := api.CheckReport{APIVersion: api.Version, Kind: "CheckReport", Gateway: gateway, At: at.UTC(), Checks: []api.Check{}}
	var checks []api.Check
	own = slices.Clone(own)
	for _, p := range peers {
		out, in := Correlate(at, own, p.Outbound, p.Inbound)
		raise(own, out)
		for _, f := range slices.Concat(out, in) {
			checks = append(checks, f.Check())
		}
	}
	for _, f := range own {
		if !only || slices.ContainsFunc(checks, func(c api.Check) bool { return c.DependsOn == f.Ref() }) {
			r.Checks = append(r.Checks, f.Check())
		}
	}
	r.Checks = append(r.Checks, checks...)
	for _, c := range r.Checks {
		switch c.Verdict.Verdict {
		case api.OK:
			r.Summary.OK++
		case api.Warning:
			r.Summary.Warning++
		case api.Error:
			r.Summary.Error++
		case api.Off:
			r.Summary.Off++
		default:
			r.Summary.Unknown++
		}
	}
	return r
}
