package bench

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The least and the usual width of a chart, in characters.
const (
	leastChart   = 40
	DefaultChart = 80
)

// WriteChart writes a bar for every subject of every scenario, of the first metric's
// median, as text of at most width characters a line and without colours. Bars of one
// scenario are of one scale, which begins at 0.
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

// scenarioChart writes a scenario's bars under its name.
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
	// Two blanks, the name, the bar and the number, a blank between each.
	room := max(width-2-names-1-1-numbers, 1)
	for _, one := range rows {
		name := one.subject + strings.Repeat(" ", names-utf8.RuneCountInString(one.subject))
		fmt.Fprintf(b, "  %s %s%s\n", name, bar(one.median, greatest, room), one.value)
	}
}

// bar is a bar of up to room characters for a share of the greatest value, in eighths of a
// character, with a blank behind it; of nothing it is nothing.
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
