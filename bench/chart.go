package bench

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Minimum and default width of a chart, in characters.
const (
	leastChart   = 40
	DefaultChart = 80
)

// WriteChart draws, for each scenario, a bar for each subject's median of the first metric. Lines
// have at most width characters and no colours. The bars of one scenario share a scale that
// begins at 0.
func (r *Report) WriteChart(w io.Writer, width int) error {
	var b strings.Builder
	for i, c := range r.Cells {
		if i == 0 || r.Cells[i-1].Scenario != c.Scenario {
			if i > 0 {
				b.WriteString("\n")
			}
			r.scenarioChart(&b, c.scenario, max(width, leastChart))
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("bench: write chart: %w", err)
	}
	return nil
}

// scenarioChart draws a scenario's bars below its name.
func (r *Report) scenarioChart(b *strings.Builder, sc Scenario, width int) {
	if len(sc.Metrics) == 0 {
		fmt.Fprintf(b, "%s: %s\n", sc.Name, sc.Title)
		return
	}
	m := sc.Metrics[0]
	better := "more is better"
	if m.Better == Lower {
		better = "less is better"
	}
	fmt.Fprintf(b, "%s: %s; %s\n", sc.Name, m.TableUnit, better)
	type row struct {
		subject, value string
		median         float64
	}
	var (
		rows           []row
		names, numbers int
		greatest       float64
	)
	for _, c := range r.Cells {
		if c.Scenario != sc.Name {
			continue
		}
		s, one := c.Summary(m), row{subject: c.Subject, value: "–"}
		if len(s.Values) > 0 {
			one.median, one.value = s.Median, fmt.Sprintf("%.*f", m.Digits, s.Median*m.Scale)
		}
		rows = append(rows, one)
		names = max(names, utf8.RuneCountInString(one.subject))
		numbers = max(numbers, utf8.RuneCountInString(one.value))
		greatest = max(greatest, one.median)
	}
	// Two spaces, then name, bar and number, separated by a space each.
	room := max(width-2-names-1-1-numbers, 1)
	for _, one := range rows {
		name := one.subject + strings.Repeat(" ", names-utf8.RuneCountInString(one.subject))
		fmt.Fprintf(b, "  %s %s%s\n", name, bar(one.median, greatest, room), one.value)
	}
}

// bar returns a bar of up to room characters for v's share of greatest, in eighths of a
// character, and a space. It returns "" for 0.
func bar(v, greatest float64, room int) string {
	if v <= 0 || greatest <= 0 {
		return ""
	}
	eighths := max(int(v/greatest*float64(room)*8+0.5), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text + " "
}
