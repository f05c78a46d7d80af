package bench

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes the comparison as text: differences of machine and settings, a table of each
// cell's metrics, and the cells that only one report has.
func (c Comparison) WriteTable(w io.Writer) error {
	var b strings.Builder
	if len(c.Unlike) > 0 {
		b.WriteString("These reports are not of the same machine and settings, so figures differ by themselves:\n")
		for _, u := range c.Unlike {
			fmt.Fprintf(&b, "  %s\n", u)
		}
		b.WriteString("\n")
	}
	counts := make(map[Effect]int)
	rows := [][]string{{"scenario", "subject", "", "before", "after", "change", "p", ""}}
	for _, one := range c.Changes {
		counts[one.Effect]++
		rows = append(rows, one.row())
	}
	if len(c.Changes) > 0 {
		writeRows(&b, rows)
		fmt.Fprintf(&b, "\nCompared: %d (Mann-Whitney U test, p < %g): %d better, %d worse, %d within noise, %d of too few runs.\n",
			len(c.Changes), Alpha, counts[Improved], counts[Worsened], counts[Noise], counts[TooFew])
		if by := int(float64(len(c.Changes))*Alpha + 0.5); by > 0 {
			fmt.Fprintf(&b, "About %d of so many differ by chance.\n", by)
		}
	} else {
		b.WriteString("No scenario and subject has results in both reports.\n")
	}
	for _, m := range c.Missing {
		fmt.Fprintf(&b, "Not compared: %s\n", m)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("bench: write comparison: %w", err)
	}
	return nil
}

func (c Change) row() []string {
	change := "–"
	if c.Before.Median != 0 {
		change = fmt.Sprintf("%+.1f %%", (c.After.Median/c.Before.Median-1)*100)
	}
	return []string{
		c.Scenario, c.Subject, c.metric.TableUnit, valueText(c.Before, c.metric), valueText(c.After, c.metric),
		change, fmt.Sprintf("%.3f", c.P), string(c.Effect),
	}
}
