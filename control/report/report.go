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
	// Version is the version that this package writes.
	Version      = "1.1"
	versionMajor = 1
	// MaxSize bounds a report, in bytes.
	MaxSize = 16 << 10
	// RenewAfter is when a report is sent although nothing has changed. Peers usually ask for a
	// hello before, every 4 to 6 min, and the answer renews the report for 400 bytes. Only a peer
	// that has stopped asking costs a separate request of 7 KB.
	RenewAfter = 7 * time.Minute
	// StaleAfter is the age at which a peer's verdict becomes unknown. When a report arrives, its
	// checks are at most RenewAfter old, and the next report follows after RenewAfter, or up to a
	// minute later if the first deliveries fail.
	StaleAfter = 2*RenewAfter + time.Minute

	maxVerdicts = 16 // including those of ignored targets
	maxAge      = 10 * 365 * 24 * time.Hour
	maxWait     = time.Hour
)

// Errors of Parse; use errors.Is.
var (
	// ErrTooLarge: the report is larger than MaxSize.
	ErrTooLarge = errors.New("the report is too large")
	// ErrVersion: the writer uses another major version.
	ErrVersion = errors.New("incompatible version of reports")
	// ErrMalformed: it is not a report, or has values out of bounds.
	ErrMalformed = errors.New("not a report")
)

// Report is one gateway's view of reaching its reader. The package documentation describes its
// wire format.
type Report struct {
	// Version is the writer's; Encode writes this package's.
	Version string
	// At is the writer's clock at the time of writing.
	At time.Time
	// Gateway is the writer's own name.
	Gateway string
	// Verdicts has at most one entry for each of gateway, auth and apiServer.
	Verdicts []Verdict
	Hears    Hears
	// NAT is the writer's.
	NAT catalogue.NAT
	// Offers and Identity indicate changes, about which the reader has to ask.
	Offers, Identity Mark
}

// Mark identifies the state of something: a different mark means a different state. Empty means
// unknown.
type Mark string

// NoIdentity is the mark if there is nothing that an identity could depend on.
const NoIdentity Mark = "0"

// maxMark is the length of a mark.
const maxMark = 16

// MarkOf returns the mark of a text in parts.
func MarkOf(parts ...string) Mark {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return Mark(hex.EncodeToString(h.Sum(nil)[:maxMark/2]))
}

// mark returns s if it is a valid mark, else "".
func mark(s Mark) Mark {
	if len(s) > maxMark || strings.Trim(string(s), "0123456789abcdef") != "" {
		return ""
	}
	return s
}

// OffersChanged reports whether the writer's offers have changed since the previous report. The
// first mark counts as a change, because it may be newer than the last hello.
func (r Report) OffersChanged(before Report) bool {
	return r.Offers != "" && r.Offers != before.Offers
}

// IdentityEnded reports whether an identity that existed at the previous report is no longer
// valid.
func (r Report) IdentityEnded(before Report) bool {
	return r.Identity != "" && before.Identity != "" && before.Identity != NoIdentity && r.Identity != before.Identity
}

// Verdict is the result of a check of one target.
type Verdict struct {
	Target  string
	Outcome api.Outcome
	// Code is empty if there is nothing to explain, otherwise of the form PSTnnnn.
	Code   catalogue.Code
	Stage  string
	Params catalogue.Shared
	RTT    time.Duration
	// Age is the time between the end of the check and the writing of the report.
	Age time.Duration
}

// Never is the age of an event that has not happened.
const Never time.Duration = -1

// Hears is how long ago the writer last had an authenticated sign of the reader: a handshake, an
// answer to a probe, a report. Each may be Never.
type Hears struct {
	Handshake, Probe, Report time.Duration
}

// Skew is how far the writer's clock is ahead of ours. Its error is the time that the report took
// to arrive: at most some seconds.
func (r Report) Skew(arrived time.Time) time.Duration { return r.At.Sub(arrived) }

// Same reports whether two reports have the same content, regardless of times and of the version.
func (r Report) Same(other Report) bool {
	return r.Gateway == other.Gateway && r.NAT == other.NAT && r.Offers == other.Offers && r.Identity == other.Identity &&
		slices.EqualFunc(r.Verdicts, other.Verdicts, func(a, b Verdict) bool {
			return a.Target == b.Target && a.Outcome == b.Outcome && a.Code == b.Code && a.Stage == b.Stage && a.Params.Same(b.Params)
		})
}

// Tell converts findings about a peer to verdicts: for each target, the finding of the check
// named after it. It drops all free texts.
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
		switch v.Code = code(f.Fault()); {
		case v.Code == catalogue.Intermittent:
			v.Outcome = api.OK // all that an earlier version takes from it
		case v.Outcome == api.OK:
			v.Code = ""
		}
		if v.Code != "" {
			v.Params = catalogue.Share(f.Params(), now)
		}
		out = append(out, v)
	}
	return out
}
