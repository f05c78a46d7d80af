package bench

import "slices"

// By says how the values of two cells are compared.
type By int

// The ways to compare. ByEachWay is half the difference: if the metric is a round-trip time, what
// each direction adds. Differences are in the metric's base unit.
const (
	ByRatio By = iota
	ByDifference
	ByEachWay
)

// Requirement is a promise about two cells of a report, or about one cell's values.
type Requirement struct {
	// Name is the promise in words.
	Name   string
	Metric Metric
	// Of is the cell and To the one that it is compared with; zero To means the value itself.
	Of, To CellName
	By     By
	// AtLeast is the lower bound of the median, AtMost the upper bound; 0 means none. Quantile,
	// if not 0, is bounded instead of the median.
	AtLeast, AtMost, Quantile float64
}

// Requirements are the promises of postern. They hold on every machine, because both sides of
// each are measured there.
func Requirements() []Requirement {
	var (
		one, four    = CellName{"tcp-1", Postern}, CellName{"tcp-4", Postern}
		stock, tsnet = CellName{"tcp-1", Stock}, CellName{"tcp-1", Tsnet}
		fixed        = CellName{"path", Postern}
		idle, busy   = CellName{"requests", Postern}, CellName{"requests-busy", Postern}
	)
	return append([]Requirement{
		{Name: "one stream's throughput over tsnet's", Metric: Throughput, Of: one, To: tsnet, AtLeast: 2},
		{Name: "one stream's throughput over stock's", Metric: Throughput, Of: one, To: stock, AtLeast: 5.5},
		{Name: "one stream's throughput per core over tsnet's", Metric: Efficiency, Of: one, To: tsnet, AtLeast: 2},
		{Name: "one stream's throughput per core over stock's", Metric: Efficiency, Of: one, To: stock, AtLeast: 5.5},
		{Name: "four streams' throughput over one's", Metric: Throughput, Of: four, To: one, AtLeast: 0.95},
		{
			Name:   "one stream's throughput without NET_ADMIN over that with it",
			Metric: Throughput, Of: CellName{"tcp-1", Unprivileged}, To: one, AtLeast: 0.9,
		},
		{Name: "one stream's peak memory over tsnet's", Metric: PeakMemory, Of: one, To: tsnet, AtMost: 1. / 8},
		{
			Name: "what each way adds to a request's median over loopback's", Metric: Median,
			Of: idle, To: CellName{"requests", Loopback}, By: ByEachWay, AtMost: 150e-6,
		},
		{Name: "99th percentile beside a bulk stream over tsnet's", Metric: P99, Of: busy, To: CellName{"requests-busy", Tsnet}, AtMost: 1. / 3},
		{Name: "99th percentile beside a bulk stream over stock's", Metric: P99, Of: busy, To: CellName{"requests-busy", Stock}, AtMost: 1. / 3},
		{
			Name:   "throughput over a path that was found, over a fixed endpoint's",
			Metric: Throughput, Of: CellName{"path", PosternPaths}, To: fixed, AtLeast: 0.97,
		},
		{
			// Per core of the two ends: coturn's processor time is not counted.
			Name:   "throughput per core through coturn over UDP, over a fixed endpoint's",
			Metric: Efficiency, Of: CellName{"path", CoturnUDP}, To: fixed, AtLeast: 0.5,
		},
	}, slices.Concat(binaryRequirements(), serviceRequirements())...)
}

// Verdict is the result of a requirement.
type Verdict string

// The verdicts. Unknown means that one side was not measured, or not as intended.
const (
	Pass    Verdict = "PASS"
	Fail    Verdict = "FAIL"
	Unknown Verdict = "UNKNOWN"
)

// Outcome is a requirement with its measurement.
type Outcome struct {
	Name    string  `json:"name"`
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
	// Quantile is the bounded quantile and AtQuantile its value; 0 means the median.
	Quantile   float64 `json:"quantile,omitempty"`
	AtQuantile float64 `json:"atQuantile,omitempty"`
	// Unit is the unit of the bounds and the measurement; empty for a ratio.
	Unit     string  `json:"unit,omitempty"`
	Measured Summary `json:"measured"`
	Verdict  Verdict `json:"verdict"`

	metric Metric
}

// Judge evaluates requirements in order. They apply to runs without limits other than a subject's
// own: with limits, every verdict is Unknown.
func Judge(r *Report, requirements []Requirement) []Outcome {
	out := make([]Outcome, 0, len(requirements))
	for _, q := range requirements {
		o := Outcome{Name: q.Name, AtLeast: q.AtLeast, AtMost: q.AtMost, Verdict: Pass, metric: q.Metric}
		switch {
		case q.By != ByRatio:
			o.Unit = q.Metric.Unit
			o.Measured = r.Difference(q.Metric, q.Of, q.To)
			if q.By == ByEachWay {
				o.Measured = o.Measured.Scaled(0.5)
			}
		case q.To == CellName{}:
			o.Unit = q.Metric.Unit
			if c, ok := r.Cell(q.Of.Scenario, q.Of.Subject); ok {
				o.Measured = c.Summary(q.Metric)
			}
		default:
			o.Measured = r.Ratio(q.Metric, q.Of, q.To)
		}
		bounded := o.Measured.Median
		if q.Quantile > 0 {
			bounded = o.Measured.Quantile(q.Quantile)
			o.Quantile, o.AtQuantile = q.Quantile, bounded
		}
		switch {
		case len(o.Measured.Values) == 0, r.limits().Any():
			o.Verdict = Unknown
		case q.AtLeast > 0 && bounded < q.AtLeast, q.AtMost > 0 && bounded > q.AtMost:
			o.Verdict = Fail
		}
		out = append(out, o)
	}
	return out
}
