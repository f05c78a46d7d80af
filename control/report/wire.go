package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/catalogue"
)

type wireReport struct {
	Version  string        `json:"version"`
	At       time.Time     `json:"at"`
	Gateway  string        `json:"gateway"`
	Verdicts []wireVerdict `json:"verdicts"`
	Hears    wireHears     `json:"hears"`
	NAT      catalogue.NAT `json:"nat"`
	Offers   Mark          `json:"offers,omitempty"`
	Identity Mark          `json:"identity,omitempty"`
}

type wireVerdict struct {
	Target  string          `json:"target"`
	Outcome string          `json:"outcome"`
	Code    string          `json:"code,omitempty"`
	Stage   string          `json:"stage,omitempty"`
	RTT     seconds         `json:"rtt,omitempty"`
	Age     seconds         `json:"age,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
}

type wireHears struct {
	Handshake *seconds `json:"handshake,omitempty"`
	Probe     *seconds `json:"probe,omitempty"`
	Report    *seconds `json:"report,omitempty"`
}

// seconds is a duration on the wire.
type seconds float64

func toSeconds(d time.Duration) seconds { return seconds(d.Seconds()) }

// Encode encodes the report in at most MaxSize bytes. A report out of bounds is an error.
func (r Report) Encode() ([]byte, error) {
	w := wireReport{
		Version: Version, At: r.At.UTC().Truncate(time.Second), Gateway: r.Gateway, Verdicts: []wireVerdict{},
		Hears: wireHears{ago(r.Hears.Handshake), ago(r.Hears.Probe), ago(r.Hears.Report)},
		NAT:   r.NAT, Offers: r.Offers, Identity: r.Identity,
	}
	for _, v := range r.Verdicts {
		w.Verdicts = append(w.Verdicts, wireVerdict{
			Target: v.Target, Outcome: string(v.Outcome), Code: string(v.Code), Stage: v.Stage,
			RTT: toSeconds(v.RTT), Age: toSeconds(v.Age), Params: json.RawMessage(v.Params),
		})
	}
	b, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("write a report: %w", err)
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("write a report: %w (%d bytes)", ErrTooLarge, len(b))
	}
	return b, nil
}

// ago returns nil for Never.
func ago(d time.Duration) *seconds {
	if d < 0 {
		return nil
	}
	s := toSeconds(d.Round(time.Second))
	return &s
}

// Parse parses a peer's report. The result is within all bounds and safe to show. Errors repeat
// nothing of the report except its version.
func Parse(body []byte) (Report, error) {
	if len(body) > MaxSize {
		return Report{}, fmt.Errorf("%w: %d bytes, and at most %d are taken", ErrTooLarge, len(body), MaxSize)
	}
	var v struct {
		Version string `json:"version"`
	}
	if err := bounded.Check(body, MaxSize); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return Report{}, fmt.Errorf("%w: it is not the JSON that is wanted here", ErrMalformed)
	}
	// Check the version first: with another major version, everything else may be different.
	if !isVersion(v.Version) {
		return Report{}, fmt.Errorf("%w: it gives no version such as %s", ErrMalformed, Version)
	}
	major, _, _ := strings.Cut(v.Version, ".")
	if n, err := strconv.Atoi(major); err != nil || n != versionMajor {
		return Report{}, fmt.Errorf("%w: it is %s, and this gateway understands %s; upgrade the older one", ErrVersion, v.Version, Version)
	}
	var w wireReport
	if err := json.Unmarshal(body, &w); err != nil {
		return Report{}, fmt.Errorf("%w: a value has another type than it should", ErrMalformed)
	}
	return w.report()
}

func (w wireReport) report() (Report, error) {
	n := &notes{}
	out := Report{
		Version: w.Version, At: w.At.UTC(), Gateway: w.Gateway,
		Hears: Hears{n.ago("hears.handshake", w.Hears.Handshake), n.ago("hears.probe", w.Hears.Probe), n.ago("hears.report", w.Hears.Report)},
		NAT:   w.NAT.Known(), Offers: mark(w.Offers), Identity: mark(w.Identity),
	}
	if api.CheckName(w.Gateway) != nil {
		n.wrong("gateway", "is no name of a gateway")
	}
	switch {
	case w.At.IsZero():
		n.wrong("at", "is missing")
	case w.At.Year() < 1970 || w.At.Year() >= 10000:
		n.wrong("at", "is no time of these days")
	}
	if len(w.Verdicts) > maxVerdicts {
		n.wrong("verdicts", "are more than "+strconv.Itoa(maxVerdicts))
	}
	seen := map[string]bool{}
	for _, v := range w.Verdicts[:min(len(w.Verdicts), maxVerdicts)] {
		if !slices.Contains(targets, v.Target) {
			continue
		}
		if seen[v.Target] {
			n.wrong("verdicts", "name a target twice")
		}
		seen[v.Target] = true
		out.Verdicts = append(out.Verdicts, v.verdict(n))
	}
	if n.err != nil {
		return Report{}, n.err
	}
	return out, nil
}

func (w wireVerdict) verdict(n *notes) Verdict {
	out := Verdict{
		Target: w.Target, Outcome: outcome(api.Outcome(w.Outcome)), Stage: stage(w.Stage),
		RTT: n.within("rtt", w.RTT, maxWait), Age: n.within("age", w.Age, maxAge),
	}
	out.Code = code(catalogue.Code(w.Code))
	if out.Outcome == api.OK && out.Code != catalogue.Intermittent { // needs no explanation
		out.Code = ""
		return out
	}
	if len(w.Params) > 0 {
		told, err := catalogue.ParseShared(w.Params)
		n.failed(err)
		out.Params = told
	}
	return out
}

// ago returns an age, Never if there is none.
func (n *notes) ago(field string, s *seconds) time.Duration {
	if s == nil {
		return Never
	}
	return n.within(field, *s, maxAge)
}

// notes reads values and keeps the first error about bounds.
type notes struct{ err error }

func (n *notes) failed(err error) {
	if n.err == nil && err != nil {
		n.err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
}

func (n *notes) wrong(field, what string) { n.failed(errors.New(field + " " + what)) }

// within returns a duration between 0 and the bound.
func (n *notes) within(field string, s seconds, bound time.Duration) time.Duration {
	if f := float64(s); f < 0 || f > bound.Seconds() { // JSON has no NaN
		n.wrong(field, "is no time that can have passed")
		return 0
	}
	return time.Duration(float64(s) * float64(time.Second)).Round(time.Microsecond)
}
