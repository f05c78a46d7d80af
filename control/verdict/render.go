package verdict

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Verdict puts a finding into words. Of one that follows from another, the fix is the root's.
func (f Finding) Verdict() api.Verdict {
	v := api.Verdict{Verdict: f.Outcome, Code: string(f.Fault()), Stage: f.Stage, RTTSeconds: f.RTT.Seconds(), Via: f.Via}
	if at := f.At; !at.IsZero() {
		v.CheckedAt = &at
	}
	own := f.words()
	v.Cause, v.Fix, v.Command = own.cause, own.fix, own.command
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
	v.Cause, v.Fix = catalogue.Render(catalogue.NotTried, p)
	if f.Code != catalogue.NotTried {
		v.Cause += ": " + own.cause
	}
	v.Fix, v.Command = v.Fix+": "+root.fix, root.command
	return v
}

// said are the words of a finding by itself: they are made when somebody asks, and kept by
// findings that stay, of which many are shown again and again.
type said struct {
	once                sync.Once
	cause, fix, command string
}

func (f Finding) words() *said {
	w := f.said
	if w == nil {
		w = &said{}
	}
	w.once.Do(func() {
		if p := f.Params(); f.Code != "" && (f.Code != catalogue.NotTried || p.Root != "") {
			w.cause, w.fix = catalogue.Render(f.Code, p)
			w.command = catalogue.Command(f.Code, p)
		}
	})
	return w
}

// Check is a finding as reports of checks have it.
func (f Finding) Check() api.Check {
	c := api.Check{Name: f.Name, Peer: f.Peer, Target: f.Target, Direction: f.Direction, Verdict: f.Verdict(), Stages: []api.CheckStage{}}
	if f.Because != nil {
		c.DependsOn = f.Because.Ref()
	}
	stages := f.Stages
	if f.Direction == api.DirectionInbound && f.Stage != "" { // all that a report tells of them
		stages = []Stage{{Name: f.Stage, Outcome: f.Outcome}}
	}
	for _, s := range stages {
		c.Stages = append(c.Stages, api.CheckStage{Stage: s.Name, Verdict: s.Outcome, Seconds: s.Took.Seconds(), Detail: s.Detail, Via: f.Via})
	}
	return c
}

// Targets are the verdicts on the three endpoints of a peer: those of the checks that name
// gives for them.
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

// alone is the verdict where a peer is shown by itself: a fault of this gateway that it follows
// from is shown in its place.
func (f Finding) alone() api.Verdict {
	if f.Because == nil || f.Because.Direction != api.DirectionOwn {
		return f.Verdict()
	}
	root, v := f.Because.Verdict(), f.Verdict()
	root.CheckedAt, root.Via = v.CheckedAt, v.Via
	return root
}

// View is how peers are shown that have three endpoints in each direction and no more: a status.
type View struct {
	at       time.Time
	own      []Finding
	problems []api.Check
}

// NewView makes one of a gateway, of which own was found.
func NewView(at time.Time, own []Finding) *View { return &View{at: at, own: slices.Clone(own)} }

// Add gives what is shown of a peer, whose endpoints are those that used names.
func (v *View) Add(p Peer, used func(target string) string) api.Reachability {
	out, in := Correlate(v.at, v.own, p.Outbound, p.Inbound)
	raise(v.own, out)
	before := len(v.problems)
	v.beside(out, used)
	v.beside(in, Inbound)
	r := api.Reachability{Outbound: Targets(out, used), Inbound: Targets(in, Inbound)}
	for _, c := range v.problems[before:] {
		if r.Beside != api.Error {
			r.Beside = c.Verdict.Verdict
		}
	}
	return r
}

// beside keeps what is wrong and has no place among the endpoints.
func (v *View) beside(list []Finding, shown func(target string) string) {
	for _, f := range list {
		if f.Faulty() && (shown == nil || f.Name != shown(f.Target)) {
			c := f.Check()
			c.Stages = []api.CheckStage{}
			v.problems = append(v.problems, c)
		}
	}
}

// Problems are what else is wrong once all peers are added, errors first: of this gateway, and of
// the ways to them.
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

// Peer is what was found of one peer, by itself.
type Peer struct {
	Name              string
	Outbound, Inbound []Finding
}

// Report correlates and renders what was found: of this gateway first, then peer by peer.
// Where it is about one peer (only), this gateway has in it what something there follows from.
// What keeps a peer here from being reached is an error, also where it is a warning by itself.
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
