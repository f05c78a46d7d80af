package report

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

const (
	// Version is what this package writes.
	Version      = "1.1"
	versionMajor = 1
	// MaxSize bounds a report, in bytes.
	MaxSize = 16 << 10
	// StaleAfter is the age at which a verdict of a peer says nothing any more. Peers
	// renew theirs within 6 min, and their checks within 6 more.
	StaleAfter = 15 * time.Minute

	maxVerdicts = 16 // of targets that are passed over, too
	maxAge      = 10 * 365 * 24 * time.Hour
	maxWait     = time.Hour
)

// Errors of Parse; use errors.Is.
var (
	// ErrTooLarge: the report is larger than MaxSize.
	ErrTooLarge = errors.New("the report is too large")
	// ErrVersion: the writer speaks another major version.
	ErrVersion = errors.New("incompatible version of reports")
	// ErrMalformed: it is no report, or one with values out of bounds.
	ErrMalformed = errors.New("not a report")
)

// Report is one gateway's view of reaching its reader. The documentation of the package
// has its wire format.
type Report struct {
	// Version is the writer's; Encode writes this package's.
	Version string
	// At is the writer's clock as it wrote.
	At time.Time
	// Gateway is what the writer calls itself.
	Gateway string
	// Verdicts are at most one for each of gateway, auth and apiServer.
	Verdicts []Verdict
	Hears    Hears
	// NAT is the writer's.
	NAT catalogue.NAT
	// Offers and Identity report changes that the reader has to ask for.
	Offers, Identity Mark
}

// Mark stands for something that may change: another mark, another thing. Empty says nothing.
type Mark string

// NoIdentity is the mark while nothing is there that an identity could hang on.
const NoIdentity Mark = "0"

// maxMark is the length of a mark.
const maxMark = 16

// MarkOf makes the mark of what is written in parts.
func MarkOf(parts ...string) Mark {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return Mark(hex.EncodeToString(h.Sum(nil)[:maxMark/2]))
}

// mark is a mark that may be one; else empty.
func mark(s Mark) Mark {
	if len(s) > maxMark || strings.Trim(string(s), "0123456789abcdef") != "" {
		return ""
	}
	return s
}

// OffersChanged reports whether a report says that the writer offers something else than by the
// one before. So does the first that says anything: what it stands for may be newer than the
// last hello.
func (r Report) OffersChanged(before Report) bool {
	return r.Offers != "" && r.Offers != before.Offers
}

// IdentityEnded reports whether a report says that an identity that was there by the one before
// is good no more.
func (r Report) IdentityEnded(before Report) bool {
	return r.Identity != "" && before.Identity != "" && before.Identity != NoIdentity && r.Identity != before.Identity
}

// Verdict is what a check of one target came to.
type Verdict struct {
	Target  string
	Outcome api.Outcome
	// Code is empty where there is nothing to explain, and of the form PSTnnnn else.
	Code   catalogue.Code
	Stage  string
	Params catalogue.Told
	RTT    time.Duration
	// Age is how long before the report was written the check ended.
	Age time.Duration
}

// Never is the age of what has not happened.
const Never time.Duration = -1

// Hears says how long ago the writer had an authenticated sign of the reader: a
// handshake, an answer to a probe, a report. It is Never for what it never had.
type Hears struct {
	Handshake, Probe, Report time.Duration
}

// Skew is how much the writer's clock is ahead of ours, given when its report arrived. It
// is off by the time the report was in progress: some seconds at worst.
func (r Report) Skew(arrived time.Time) time.Duration { return r.At.Sub(arrived) }

// Same reports whether two reports say the same: the same verdicts for the same reasons,
// whatever the times.
func (r Report) Same(other Report) bool {
	return r.Gateway == other.Gateway && r.NAT == other.NAT && r.Offers == other.Offers && r.Identity == other.Identity &&
		slices.EqualFunc(r.Verdicts, other.Verdicts, func(a, b Verdict) bool {
			return a.Target == b.Target && a.Outcome == b.Outcome && a.Code == b.Code && a.Stage == b.Stage && a.Params.Same(b.Params)
		})
}

// Tell makes what can be told of the findings on a peer: of each target that of the check named
// after it. Every free text stays here.
func Tell(found []verdict.Finding, now time.Time) []Verdict {
	var out []Verdict
	for _, target := range targets {
		f, ok := verdict.Find(found, target)
		if !ok {
			continue
		}
		f = f.ForPeer()
		v := Verdict{Target: target, Outcome: outcome(f.Outcome), Stage: stage(f.Stage), RTT: f.RTT.Round(time.Microsecond)}
		if !f.At.IsZero() {
			v.Age = min(max(now.Sub(f.At), 0), maxAge).Round(time.Second)
		}
		if v.Code = code(f.Fault()); v.Outcome == api.OK {
			v.Code = ""
		}
		if v.Code != "" {
			v.Params = catalogue.Tell(f.Params(), now)
		}
		out = append(out, v)
	}
	return out
}
