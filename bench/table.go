package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// WriteTable writes the report as text: a table for each scenario with each subject's metrics as
// median ± half the range in per cent and the ratio of its first metric to the reference
// subject's, as ratio [min–max], then the requirements with their verdicts.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s/%s, %d cores, %s%s; %s\n", m.OS, m.Arch, m.Cores, m.Go, kernelText(m), orUnknown(m.CPU))
	fmt.Fprintf(&b, "%d rounds, %gs measured after %gs of warming up; median ± half the range; ratios by round [least–greatest]\n",
		r.Rounds, r.Seconds, r.Warmup)
	if l := r.limits(); l.Any() {
		fmt.Fprintf(&b, "within %s, but for subjects that have limits of their own\n", l)
	}
	for i, c := range r.Cells {
		if i == 0 || r.Cells[i-1].Scenario != c.Scenario {
			b.WriteString("\n")
			r.scenarioTable(&b, c.scenario)
		}
	}
	if outcomes := Judge(r, Requirements()); r.measured(outcomes) {
		b.WriteString("\nRequired (medians)\n")
		writeRows(&b, outcomeRows(outcomes))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("bench: write table: %w", err)
	}
	return nil
}

// measured reports whether any verdict is not Unknown. If there is none, the table of requirements
// is left out.
func (r *Report) measured(outcomes []Outcome) bool {
	for _, o := range outcomes {
		if o.Verdict != Unknown {
			return true
		}
	}
	return false
}

func (r *Report) scenarioTable(b *strings.Builder, sc Scenario) {
	fmt.Fprintf(b, "%s: %s\n", sc.Name, sc.Title)
	head := []string{"subject"}
	for _, m := range sc.Metrics {
		head = append(head, m.TableUnit)
	}
	reference, compared := r.reference(sc)
	if compared {
		head = append(head, "× "+reference)
	}
	rows := [][]string{head}
	var notes []string
	for _, c := range r.Cells {
		if c.Scenario != sc.Name {
			continue
		}
		row := []string{c.Subject}
		for _, m := range sc.Metrics {
			row = append(row, valueText(c.Summary(m), m))
		}
		if compared {
			ratio := r.Ratio(sc.Metrics[0], CellName{sc.Name, c.Subject}, CellName{sc.Name, reference})
			row = append(row, ratioText(ratio))
		}
		rows = append(rows, row)
		if n, reason := c.Failures(); n > 0 {
			notes = append(notes, fmt.Sprintf("  %s: %d of %d runs failed: %s\n", c.Subject, n, len(c.Runs), reason))
		}
	}
	writeRows(b, rows)
	for _, n := range notes {
		b.WriteString(n)
	}
}

// reference returns the subject that others are compared with; ok is false if it was not run.
func (r *Report) reference(sc Scenario) (name string, ok bool) {
	_, ok = r.Cell(sc.Name, sc.Reference)
	return sc.Reference, ok
}

// valueText formats a summary as "3.96 ± 4 %", or a dash.
func valueText(s Summary, m Metric) string {
	switch len(s.Values) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf("%.*f", m.Digits, s.Median*m.Scale)
	}
	return fmt.Sprintf("%.*f ± %.0f %%", m.Digits, s.Median*m.Scale, s.Spread()*100)
}

// ratioText formats a summary as "4.51 [4.32–4.80]", or a dash.
func ratioText(s Summary) string {
	switch len(s.Values) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf("%.2f", s.Median)
	}
	return fmt.Sprintf("%.2f [%.2f–%.2f]", s.Median, s.Min, s.Max)
}

// WriteOutcomes writes a line for each outcome that is not Unknown.
func WriteOutcomes(b *strings.Builder, outcomes []Outcome) {
	writeRows(b, outcomeRows(slices.DeleteFunc(slices.Clone(outcomes), func(o Outcome) bool { return o.Verdict == Unknown })))
}

func outcomeRows(outcomes []Outcome) [][]string {
	var rows [][]string
	for _, o := range outcomes {
		measured, unit, atLeast, atMost, atQuantile := o.Measured, "", o.AtLeast, o.AtMost, o.AtQuantile
		if o.Unit != "" {
			scale := o.metric.Scale
			measured, unit = measured.Scaled(scale), " "+lastWord(o.metric.TableUnit)
			atLeast, atMost, atQuantile = atLeast*scale, atMost*scale, atQuantile*scale
		}
		bound := fmt.Sprintf("≥ %.3g", atLeast)
		if atMost > 0 {
			bound = fmt.Sprintf("≤ %.3g", atMost)
		}
		text := ratioText(measured)
		if o.Quantile > 0 && o.Verdict != Unknown {
			unit += fmt.Sprintf(" at p%.0f", o.Quantile*100)
			text = fmt.Sprintf("%.2f of %s", atQuantile, text)
		}
		rows = append(rows, []string{string(o.Verdict), o.Name, bound + unit, text})
	}
	return rows
}

// lastWord returns the unit of a heading such as "p50 µs".
func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }

// writeRows aligns columns by their width in characters, separated by two spaces.
func writeRows(b *strings.Builder, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString("  " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func kernelText(m Machine) string {
	if m.Kernel == "" {
		return ""
	}
	return ", kernel " + m.Kernel
}

func orUnknown(s string) string {
	if s == "" {
		return "processor unknown"
	}
	return s
}
