package wan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postern-dev/postern/bench"
)

// leastRatio is what postern promises of its throughput over the reference's, in every
// cell of the grid.
const leastRatio = 0.9

// WriteTable writes a report for people: the grid with the medians of both subjects in
// Mbit/s and the median, least and greatest of the rounds' ratios; a losing cell is marked
// and named. Then the keystrokes, with what they may take: twice the idle 99th percentile
// and the link's queue.
func WriteTable(r *bench.Report, w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s, %d cores; one TCP stream over %g Gbit/s each way; queue of one round trip, at least %d KiB\n",
		r.Machine.OS, r.Machine.Arch, r.Machine.Cores, gridRate/1e9, leastQueue>>10)
	if err := writeGrid(r, &b); err != nil {
		return err
	}
	writeKeys(r, &b)
	writeDoubts(r, &b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("wan: write table: %w", err)
	}
	return nil
}

// writeGrid writes the grid and who loses where.
func writeGrid(r *bench.Report, b *strings.Builder) error {
	fmt.Fprintf(b, "Mbit/s of %s / %s; ratio by round, median [least–greatest]; ! is below %g\n\n", bench.Postern, Reference, leastRatio)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  RTT")
	for _, loss := range gridLosses {
		fmt.Fprintf(t, "\tloss %g %%", loss*100)
	}
	fmt.Fprintln(t)
	var judged tally
	for _, rtt := range gridRTTs {
		fmt.Fprintf(t, "  %d ms", rtt.Milliseconds())
		for _, loss := range gridLosses {
			fmt.Fprint(t, "\t"+judged.cell(r, fmt.Sprintf("wan-%dms-%g%%", rtt.Milliseconds(), loss*100)))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("wan: write table: %w", err)
	}
	if judged.cells > 0 {
		fmt.Fprintf(b, "\n  %d of %d cells higher than %s, %d lower than %g", judged.higher, judged.cells, Reference, len(judged.losing), leastRatio)
		if len(judged.losing) > 0 {
			fmt.Fprintf(b, ": %s", strings.Join(judged.losing, ", "))
		}
		fmt.Fprintln(b)
	}
	return nil
}

// tally counts the grid's cells by how they came out.
type tally struct {
	cells, higher int
	losing        []string
}

// cell is a scenario's field of the grid; a dash stands for what was not measured.
func (t *tally) cell(r *bench.Report, name string) string {
	m := throughput()
	field := median(r, name, bench.Postern, m) + " / " + median(r, name, Reference, m)
	ratio := r.Ratio(m, bench.CellName{Scenario: name, Subject: bench.Postern}, bench.CellName{Scenario: name, Subject: Reference})
	if len(ratio.Values) == 0 {
		return field
	}
	t.cells++
	if ratio.Median > 1 {
		t.higher++
	}
	mark := ""
	if ratio.Median < leastRatio {
		mark = " !"
		t.losing = append(t.losing, strings.TrimPrefix(name, "wan-"))
	}
	return fmt.Sprintf("%s  %.2f [%.2f–%.2f]%s", field, ratio.Median, ratio.Min, ratio.Max, mark)
}

// median is a cell's, in the metric's table unit.
func median(r *bench.Report, scenario, subject string, m bench.Metric) string {
	c, ok := r.Cell(scenario, subject)
	if !ok {
		return "–"
	}
	s := c.Summary(m)
	if len(s.Values) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f", m.Digits, s.Median*m.Scale)
}

// writeKeys writes what keystrokes take, and may take.
func writeKeys(r *bench.Report, b *strings.Builder) {
	queue := Path{RTT: keysRTT, Rate: keysRate}.QueueDelay()
	title := false
	for _, subject := range []string{bench.Postern, Reference} {
		idle, busy := seconds(r, kindKeysIdle, subject), seconds(r, kindKeysBusy, subject)
		if idle == 0 && busy == 0 {
			continue
		}
		if !title {
			fmt.Fprintf(b, "\nKeystrokes, %d a second, over %g Mbit/s, %s, a queue of %s: milliseconds until the echo, median / 99th percentile\n",
				keysPerSecond, keysRate/1e6, keysRTT, queue.Round(time.Millisecond))
			title = true
		}
		fmt.Fprintf(b, "  %s: idle %s / %s, beside a bulk stream %s / %s", subject,
			median(r, "wan-"+kindKeysIdle, subject, keyP50), median(r, "wan-"+kindKeysIdle, subject, keyP99),
			median(r, "wan-"+kindKeysBusy, subject, keyP50), median(r, "wan-"+kindKeysBusy, subject, keyP99))
		if idle > 0 && busy > 0 {
			most := 2*idle + queue.Seconds()
			verdict := bench.Pass
			if busy > most {
				verdict = bench.Fail
			}
			fmt.Fprintf(b, "; %s: at most %.0f allowed", verdict, most*1e3)
		}
		fmt.Fprintln(b)
	}
}

// seconds is the median of a cell's 99th percentiles, 0 if there is none.
func seconds(r *bench.Report, kind, subject string) float64 {
	c, ok := r.Cell("wan-"+kind, subject)
	if !ok {
		return 0
	}
	return c.Summary(keyP99).Median
}

// writeDoubts tells of runs that failed, and of those in which the forwarder itself lost
// packets.
func writeDoubts(r *bench.Report, b *strings.Builder) {
	for _, c := range r.Cells {
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
