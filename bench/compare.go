package bench

import (
	"fmt"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Values of kind and version in a comparison's JSON form.
const (
	ComparisonKind    = "BenchComparison"
	ComparisonVersion = 1
)

// Alpha is the significance level: the probability of reporting a change of one value where there
// is none. Of a hundred unchanged values, five are reported as changed.
const Alpha = 0.05

// Comparison holds the differences between two reports.
type Comparison struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	// Unlike lists differences of machine, run length or limits, which change the figures by
	// themselves.
	Unlike []string `json:"unlike,omitempty"`
	// Changes has every metric of every cell that is in both reports, in the order of the newer
	// report.
	Changes []Change `json:"changes"`
	// Missing lists the cells that only one report has a result for, and which report that is.
	Missing []string `json:"missing,omitempty"`
}

// Change is the change of one metric of one cell.
type Change struct {
	Scenario string    `json:"scenario"`
	Subject  string    `json:"subject"`
	Metric   string    `json:"metric"`
	Unit     string    `json:"unit"`
	Better   Direction `json:"better"`
	Before   Summary   `json:"before"`
	After    Summary   `json:"after"`
	// P is the probability that runs without a change differ at least this much, by the
	// Mann-Whitney U test.
	P      float64 `json:"p"`
	Effect Effect  `json:"effect"`

	metric Metric
}

// Effect classifies a change.
type Effect string

// The effects. Noise means a difference within the spread of the runs. TooFew means that there
// are too few runs to decide: each report needs four.
const (
	Improved Effect = "better"
	Worsened Effect = "worse"
	Noise    Effect = "noise"
	TooFew   Effect = "too few runs"
)

// Compare compares the values of two reports, and classifies each change.
func Compare(before, after *Report) Comparison {
	c := Comparison{
		Kind: ComparisonKind, Version: ComparisonVersion,
		Unlike: unlike(before, after), Changes: []Change{},
	}
	for _, now := range after.Cells {
		was, ok := before.Cell(now.Scenario, now.Subject)
		if !ok {
			c.Missing = append(c.Missing, fmt.Sprintf("%s %s: only after", now.Scenario, now.Subject))
			continue
		}
		c.Changes = append(c.Changes, changes(was, now)...)
		if only := onlyOne(was, now); only != "" {
			c.Missing = append(c.Missing, fmt.Sprintf("%s %s: %s", now.Scenario, now.Subject, only))
		}
	}
	for _, was := range before.Cells {
		if _, ok := after.Cell(was.Scenario, was.Subject); !ok {
			c.Missing = append(c.Missing, fmt.Sprintf("%s %s: only before", was.Scenario, was.Subject))
		}
	}
	return c
}

// onlyOne says which of two cells has a result, and why the other has none.
func onlyOne(was, now Cell) string {
	failedBefore, whyBefore := was.Failures()
	failedAfter, whyAfter := now.Failures()
	switch before, after := failedBefore < len(was.Runs), failedAfter < len(now.Runs); {
	case before && !after:
		return "no result after: " + whyAfter
	case after && !before:
		return "no result before: " + whyBefore
	}
	return ""
}

// changes compares the metrics of a cell.
func changes(was, now Cell) []Change {
	var out []Change
	for _, m := range now.scenario.Metrics {
		c := Change{
			Scenario: now.Scenario, Subject: now.Subject, Metric: m.Name, Unit: m.Unit, Better: m.Better,
			Before: was.Summary(m), After: now.Summary(m), metric: m,
		}
		if len(c.Before.Values) == 0 || len(c.After.Values) == 0 {
			continue
		}
		c.P, c.Effect = effect(m, c.Before, c.After)
		out = append(out, c)
	}
	return out
}

// effect tests whether two samples come from one distribution.
func effect(m Metric, before, after Summary) (p float64, e Effect) {
	thresholds := benchmath.DefaultThresholds
	thresholds.CompareAlpha = Alpha
	sample := func(s Summary) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(s.Values), &thresholds) // It sorts them.
	}
	test := benchmath.AssumeNothing.Compare(sample(before), sample(after))
	switch {
	case test.P < Alpha && after.Median == before.Median: // only the spread differs, which is no change of the figure
		return test.P, Noise
	case test.P < Alpha && (after.Median > before.Median) == (m.Better == Higher):
		return test.P, Improved
	case test.P < Alpha:
		return test.P, Worsened
	case len(test.Warnings) > 0 && before.Median != after.Median:
		return test.P, TooFew
	}
	return test.P, Noise
}

// unlike lists the differences between two reports that change the figures by themselves.
func unlike(a, b *Report) []string {
	var out []string
	differ := func(what string, before, after any) {
		if before != after {
			out = append(out, fmt.Sprintf("%s: %v before, %v after", what, before, after))
		}
	}
	differ("operating system", a.Machine.OS+"/"+a.Machine.Arch, b.Machine.OS+"/"+b.Machine.Arch)
	differ("processor", orUnknown(a.Machine.CPU), orUnknown(b.Machine.CPU))
	differ("cores", a.Machine.Cores, b.Machine.Cores)
	differ("kernel", a.Machine.Kernel, b.Machine.Kernel)
	differ("Go", a.Machine.Go, b.Machine.Go)
	differ("seconds measured", a.Seconds, b.Seconds)
	differ("seconds of warming up", a.Warmup, b.Warmup)
	differ("limits", a.limits(), b.limits())
	return out
}
