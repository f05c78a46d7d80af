// Package verdict holds what checks find as data, says which finding is the root of which, and
// puts them into words.
//
// A [Finding] is made by control/check, or out of a peer's report by control/report. [Correlate]
// tells roots and dependents apart. The words come last, where somebody reads them: by
// [Finding.Verdict], [Targets] and [Report], from the texts in control/catalogue. Nothing is
// changed in a sentence afterwards, and nothing is read back out of one.
package verdict

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Ways by which a finding was reached, as api.Verdict has them.
const (
	ViaInBand = "in-band" // through the tunnel
	ViaDirect = "direct"  // outside of it
)

// Stage is one step of a check.
type Stage struct {
	Name    string
	Outcome api.Outcome
	Took    time.Duration
	// Detail is the error's text, or what was seen; clean to show.
	Detail string
}

// Finding is what one check came to. Who has it may not change what it points to.
type Finding struct {
	// Name is unique within the peer: the target's, or one of its own.
	Name string
	// Target is auth, apiServer or gateway.
	Target string
	// Peer is empty for what is about this gateway alone.
	Peer      string
	Direction string // outbound, inbound or own, as api has them

	Outcome api.Outcome
	// Code says what is wrong, or by a note why there is no verdict; empty where all is well.
	Code catalogue.Code
	// Skew is how far a server's clock is ahead of this machine's, by its answer; 0 where it did not
	// show one.
	Skew time.Duration
	// Sure is how sure the code is; empty is certain.
	Sure api.Confidence
	// Args are the values that the code's texts are made of. They are large: nil where all but
	// the peer is nothing, and so of a thousand peers that are well.
	Args *catalogue.Params
	// Rests are the checks, by [Finding.Ref], that may explain this one as far as was seen. The
	// first of them that fails is the root, so what everything else needs comes first.
	Rests []string
	// Because is the root, once it is known to be one.
	Because *Finding

	Stage  string // where it failed
	Stages []Stage
	Via    string
	RTT    time.Duration
	// At is when it was found, and Heard when a peer told it; zero of what was not.
	At, Heard time.Time
	// Since is since when each round has found silence here; zero of what is none.
	Since time.Time
	// Address is where a service was asked, whatever came of it.
	Address string
	// Used: the way outside the tunnel is the one that is used.
	Used bool
	// Told is what the peer is told instead of this; nil where it is told this.
	Told *Finding

	said *said // once it was correlated
}

// Ref is how findings about a peer refer to this one.
func (f Finding) Ref() string {
	if f.Direction == api.DirectionOwn {
		return Own(f.Name)
	}
	return f.Name
}

// Own is the reference to a check of this gateway.
func Own(name string) string { return "own/" + name }

// Inbound is the name of what a peer reports about a target, and Outside that of a check of it
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

// Fault is the code of what is wrong; empty where nothing is, or the root is another finding.
func (f Finding) Fault() catalogue.Code {
	if f.Because != nil {
		return ""
	}
	return f.Code.Fault()
}

// ForPeer is the finding as the peer may be told it: without what an address that the peer
// announced has made this gateway find in its own network.
func (f Finding) ForPeer() Finding {
	if f.Told != nil {
		return *f.Told
	}
	return f
}

// Params are the values of the texts.
func (f Finding) Params() catalogue.Params {
	if f.Args == nil {
		return catalogue.Params{Peer: f.Peer}
	}
	return *f.Args
}

// Failed reports whether something does not work, and Faulty whether there is something to fix.
func (f Finding) Failed() bool { return f.Outcome == api.Error }

func (f Finding) Faulty() bool { return f.Failed() || f.Outcome == api.Warning }

// With is the finding with its code's values changed.
func (f Finding) With(change func(*catalogue.Params)) Finding {
	p := f.Params()
	change(&p)
	f.Args, f.said = &p, nil
	return f
}

// Find gives the finding of a name, and whether there is one.
func Find(list []Finding, name string) (Finding, bool) {
	if i := index(list, name); i >= 0 {
		return list[i], true
	}
	return Finding{}, false
}

func index(list []Finding, ref string) int {
	return slices.IndexFunc(list, func(f Finding) bool { return f.Ref() == ref })
}

// NotChecked is the finding of a check that was not made yet.
func NotChecked(peer, name, target string) Finding {
	return Finding{Name: name, Target: target, Peer: peer, Direction: api.DirectionOutbound, Outcome: api.Unknown, Code: catalogue.NotChecked}
}
