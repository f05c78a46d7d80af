package bench

// Requirement is a promise about a ratio between two cells of one report.
type Requirement struct {
	// Name says what is promised, in words.
	Name   string
	Metric Metric
	Of, To CellName
	// AtLeast bounds the ratio's median from below, AtMost from above; 0 for no bound.
	AtLeast, AtMost float64
}

// Requirements are what postern promises of every machine, because both sides of each
// ratio are measured on it.
func Requirements() []Requirement {
	one := CellName{"tcp-1", Postern}
	four := CellName{"tcp-4", Postern}
	stock := CellName{"tcp-1", Stock}
	found, fixed := CellName{"path", PosternPaths}, CellName{"path", Postern}
	return []Requirement{
		{Name: "one stream's throughput over stock's", Metric: Throughput, Of: one, To: stock, AtLeast: 4},
		{Name: "one stream's peak memory over stock's", Metric: PeakMemory, Of: one, To: stock, AtMost: 0.8},
		{Name: "four streams' throughput over one's", Metric: Throughput, Of: four, To: one, AtLeast: 0.8},
		{Name: "throughput over a path that was found, over a fixed endpoint's", Metric: Throughput, Of: found, To: fixed, AtLeast: 0.97},
	}
}

// Verdict of a requirement.
type Verdict string

// The verdicts: Unknown is for a ratio of which one side was not measured.
const (
	Pass    Verdict = "PASS"
	Fail    Verdict = "FAIL"
	Unknown Verdict = "UNKNOWN"
)

// Outcome is a requirement and what was measured.
type Outcome struct {
	Name    string  `json:"name"`
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
	Ratio   Summary `json:"ratio"`
	Verdict Verdict `json:"verdict"`
}

// Judge holds a report against requirements, in their order.
func Judge(r *Report, requirements []Requirement) []Outcome {
	out := make([]Outcome, 0, len(requirements))
	for _, q := range requirements {
		o := Outcome{
			Name: q.Name, AtLeast: q.AtLeast, AtMost: q.AtMost,
			Ratio: r.Ratio(q.Metric, q.Of, q.To), Verdict: Pass,
		}
		switch {
		case len(o.Ratio.Values) == 0:
			o.Verdict = Unknown
		case q.AtLeast > 0 && o.Ratio.Median < q.AtLeast, q.AtMost > 0 && o.Ratio.Median > q.AtMost:
			o.Verdict = Fail
		}
		out = append(out, o)
	}
	return out
}
