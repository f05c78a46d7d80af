// Package verdict holds what checks find as data, says which finding is the root of which, and
// renders them as text.
//
// control/check makes a [Finding], or control/report decodes it from a peer's report. [Correlate]
// tells roots from dependents. Rendering comes last, at the edge: [Finding.Verdict], [Targets] and
// [Report] use the texts of control/catalogue. Nothing edits a rendered sentence or parses one.
package verdict

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Paths on which a finding was made, as api.Verdict has them.
const (
	ViaInBand = "in-band" // through the tunnel
	ViaDirect = "direct"  // outside of it
)

// Stage is one step of a check.
type Stage struct {
	Name    string
	Outcome api.Outcome
	Took    time.Duration
	// Detail is the error's text or an observation, sanitised for display.
	Detail string
}

// Finding is the result of one check. Holders must not change what it points to.
type Finding struct {
	// Name is unique within the peer: the target's, or one of its own.
	Name string
	// Target is auth, apiServer or gateway.
	Target string
	// Peer is empty if the finding is about this gateway alone.
	Peer      string
	Direction string // outbound, inbound or own, as api has them

	Outcome api.Outcome
	// Code says what is wrong, or why there is no verdict (a note); empty if all is well.
	Code catalogue.Code
	// Skew is how far a server's clock is ahead of this host's, according to its answer; 0 if
	// unknown.
	Skew time.Duration
	// Sure is the confidence in the code; empty means certain.
	Sure api.Confidence
	// Args are the values for the code's texts. They are large, so they are nil if only the peer is
	// set, as for a thousand healthy peers.
	Args *catalogue.Params
	// Rests are the checks, by [Finding.Ref], that may explain this one. The first that fails is
	// the root, so the most basic comes first.
	Rests []string
	// Because is the root, once it is known.
	Because *Finding

	Stage  string // where it failed
	Stages []Stage
	Via    string
	RTT    time.Duration
	// At is when it was found, and Heard when a peer reported it; zero if not.
	At, Heard time.Time
	// Since is the start of the silence that every round since has confirmed, and never before
	// something was last heard; zero if not silent.
	Since time.Time
	// Address is where a service was contacted, whatever the result.
	Address string
	// Used says that the path outside the tunnel is the one in use.
	Used bool
	// Told is what the peer is told instead of this finding; nil if it is told this.
	Told *Finding

	said *said // set by Correlate
}

// Ref is the name by which other findings about the peer refer to this one.
func (f Finding) Ref() string {
	if f.Direction == api.DirectionOwn {
		return Own(f.Name)
	}
	return f.Name
}

// Own returns the reference to a check of this gateway.
func Own(name string) string { return "own/" + name }

// Inbound is the name of a peer's report about a target, and Outside the name of a check of it
// outside the tunnel.
func Inbound(target string) string { return "inbound-" + target }

func Outside(target string) string {
	if target == api.ServiceGateway {
		return target
	}
	return target + "-direct"
}

// Upstream is the name of the check of the server behind a service of this gateway.
func Upstream(service string) string { return "upstream-" + service }

// Inside is the name of the check that is named after its target.
func Inside(target string) string { return target }

// Fault is the code of what is wrong; empty if nothing is, or if the root is another finding.
func (f Finding) Fault() catalogue.Code {
	if f.Because != nil {
		return ""
	}
	return f.Code.Fault()
}

// ForPeer returns the finding as the peer may see it. It leaves out what this gateway found in its
// own network at an address that the peer announced.
func (f Finding) ForPeer() Finding {
	if f.Told != nil {
		return *f.Told
	}
	return f
}

// Params returns the values of the texts.
func (f Finding) Params() catalogue.Params {
	if f.Args == nil {
		return catalogue.Params{Peer: f.Peer}
	}
	return *f.Args
}

// Failed reports whether something does not work, and Faulty whether there is something to fix.
func (f Finding) Failed() bool { return f.Outcome == api.Error }

func (f Finding) Faulty() bool { return f.Failed() || f.Outcome == api.Warning }

// With returns the finding with its code's values changed.
func (f Finding) With(change func(*catalogue.Params)) Finding {
	p := f.Params()
	change(&p)
	f.Args, f.said = &p, nil
	return f
}

// Find returns the finding of a name, and whether there is one.
func Find(list []Finding, name string) (Finding, bool) {
	if i := index(list, name); i >= 0 {
		return list[i], true
	}
	return Finding{}, false
}

func index(list []Finding, ref string) int {
	return slices.IndexFunc(list, func(f Finding) bool { return f.Ref() == ref })
}

// NotChecked returns the finding of a check that has not run yet.
func NotChecked(peer, name, target string) Finding {
	return Finding{Name: name, Target: target, Peer: peer, Direction: api.DirectionOutbound, Outcome: api.Unknown, Code: catalogue.NotChecked}
}
