package wan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postern-dev/postern/bench"
)

// View presents a report with ratios to a base subject.
type View struct {
	*bench.Report
	Base string
}

// ReadReport reads a report's JSON form.
func ReadReport(from io.Reader) (*bench.Report, error) {
	var known []bench.Scenario
	for _, s := range Scenarios() {
		known = append(known, s.Scenario)
	}
	return bench.ReadReport(from, known...)
}

// ratio returns the ratio of a cell's first metric to the base's, by round.
func (v View) ratio(s Scenario, subject string) bench.Summary {
	if subject == v.Base {
		return bench.Summary{}
	}
	return v.Ratio(s.Metrics[0], bench.CellName{Scenario: s.Name, Subject: subject}, bench.CellName{Scenario: s.Name, Subject: v.Base})
}

// WriteJSON writes the report in bench's form, with the ratios of each cell's first metric to the
// base's.
func (v View) WriteJSON(w io.Writer) error {
	type ratio struct {
		Scenario      string        `json:"scenario"`
		Subject       string        `json:"subject"`
		Metric        string        `json:"metric"`
		LowerQuartile float64       `json:"lowerQuartile"`
		Summary       bench.Summary `json:"summary"`
	}
	out := struct {
		bench.Document
		Base   string  `json:"base"`
		Ratios []ratio `json:"ratios"`
	}{Document: v.Document(Requirements()), Base: v.Base}
	for _, s := range Scenarios() {
		for _, subject := range v.subjects(s) {
			if r := v.ratio(s, subject); len(r.Values) > 0 {
				out.Ratios = append(out.Ratios, ratio{s.Name, subject, s.Metrics[0].Name, r.Quantile(lowerQuartile), r})
			}
		}
	}
	return bench.EncodeJSON(out, w)
}

// subjects returns those with a cell of the scenario.
func (v View) subjects(s Scenario) (names []string) {
	for _, c := range v.Cells {
		if c.Scenario == s.Name {
			names = append(names, c.Subject)
		}
	}
	return names
}

// WriteTable writes the report as text: a table for each family of scenarios with the medians of
// each subject's metrics, and the median and lower quartile of its ratios to the base. Then come
// the limits of keystrokes, the requirements, and reasons to doubt runs.
func (v View) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s, %d cores; %d rounds at most; medians; × %s: median and lower quartile of the first column's ratio by round\n",
		v.Machine.OS, v.Machine.Arch, v.Machine.Cores, v.Rounds, v.Base)
	measured := slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return len(v.subjects(s)) == 0 })
	for len(measured) > 0 {
		n := slices.IndexFunc(measured, func(s Scenario) bool { return s.Family != measured[0].Family })
		if n < 0 {
			n = len(measured)
		}
		if err := v.writeFamily(measured[:n], &b); err != nil {
			return err
		}
		measured = measured[n:]
	}
	v.writeKeys(&b)
	if outcomes := bench.Judge(v.Report, Requirements()); slices.ContainsFunc(outcomes, known) {
		fmt.Fprintf(&b, "\nRequired of %s\n", bench.Postern)
		bench.WriteOutcomes(&b, outcomes)
	}
	v.writeDoubts(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("wan: write table: %w", err)
	}
	return nil
}

func known(o bench.Outcome) bool { return o.Verdict != bench.Unknown }

// writeFamily writes the table of a family of scenarios. It has a column for each metric of any of
// them.
func (v View) writeFamily(scenarios []Scenario, b *strings.Builder) error {
	var columns []bench.Metric
	for _, s := range scenarios {
		for _, m := range s.Metrics {
			if !has(columns, m) {
				columns = append(columns, m)
			}
		}
	}
	fmt.Fprintf(b, "\n%s\n\n", scenarios[0].Family)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  cell\tsubject")
	for _, m := range columns {
		fmt.Fprint(t, "\t"+m.TableUnit)
	}
	fmt.Fprintf(t, "\t× %s\tquartile\n", v.Base)
	for _, s := range scenarios {
		for i, subject := range v.subjects(s) {
			cell := s.Cell
			if i > 0 {
				cell = ""
			}
			fmt.Fprintf(t, "  %s\t%s", cell, subject)
			for _, m := range columns {
				field := "–"
				if has(s.Metrics, m) {
					field = v.median(s.Name, subject, m)
				}
				fmt.Fprint(t, "\t"+field)
			}
			if r := v.ratio(s, subject); len(r.Values) > 0 {
				fmt.Fprintf(t, "\t%.2f\t%.2f\n", r.Median, r.Quantile(lowerQuartile))
			} else {
				fmt.Fprint(t, "\t–\t–\n")
			}
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("wan: write table: %w", err)
	}
	return nil
}

func has(metrics []bench.Metric, m bench.Metric) bool {
	return slices.ContainsFunc(metrics, func(o bench.Metric) bool { return o.Unit == m.Unit })
}

// median returns a cell's median in the metric's table unit.
func (v View) median(scenario, subject string, m bench.Metric) string {
	c, ok := v.Cell(scenario, subject)
	if !ok {
		return "–"
	}
	s := c.Summary(m)
	if len(s.Values) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f", m.Digits, s.Median*m.Scale)
}

// writeKeys writes the limit of the 99th percentile of keystrokes beside a bulk stream: twice the
// idle one plus the link's queue.
func (v View) writeKeys(b *strings.Builder) {
	queue := Path{RTT: keysRTT, Rate: keysRate}.QueueDelay()
	for _, subject := range []string{bench.Postern, bench.Tsnet} {
		idle, busy := v.keySeconds(cellKeysIdle, subject), v.keySeconds(cellKeysBusy, subject)
		if idle == 0 || busy == 0 {
			continue
		}
		most := 2*idle + queue.Seconds()
		verdict := bench.Pass
		if busy > most {
			verdict = bench.Fail
		}
		fmt.Fprintf(b, "  %s, p99 beside a bulk stream of twice the idle one and a queue of %s: %s: at most %.0f allowed\n",
			subject, queue.Round(time.Millisecond), verdict, most*1e3)
	}
}

// keySeconds returns the median of a cell's 99th percentiles, 0 if there is none.
func (v View) keySeconds(cell, subject string) float64 {
	c, ok := v.Cell(scenarioName(cell), subject)
	if !ok {
		return 0
	}
	return c.Summary(keyP99).Median
}

// writeDoubts writes which runs failed, and in which the forwarder itself lost packets.
func (v View) writeDoubts(b *strings.Builder) {
	for _, c := range v.Cells {
		if n, reason := c.Failures(); n > 0 {
			fmt.Fprintf(b, "  %s %s: %d of %d runs failed: %s\n", c.Scenario, c.Subject, n, len(c.Runs), reason)
		}
		missed := 0.0
		for _, run := range c.Runs {
			if run.Result != nil {
				missed += run.Result.Values[unitMissed]
			}
		}
		if missed > 0 {
			fmt.Fprintf(b, "  %s %s: the forwarder was late and lost %.0f packets on top\n", c.Scenario, c.Subject, missed)
		}
	}
}
