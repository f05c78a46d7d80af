package bench

import (
	"fmt"
	"io"
	"strings"
)

// WriteBenchstat writes each run as a line in the Go project's benchmark data format
// (golang.org/design/14313-benchmark-format), for golang.org/x/perf/cmd/benchstat:
//
//	BenchmarkTCP/streams=1/subject=postern-2  1  3.96e+09 bit/s  …
//
// `benchstat -col /subject FILE` then compares subjects, and `benchstat OLD NEW` two reports.
// Failed runs become comment lines, which benchstat ignores.
func (r *Report) WriteBenchstat(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\npkg: github.com/postern-dev/postern/bench\n", r.Machine.OS, r.Machine.Arch)
	if r.Machine.CPU != "" {
		fmt.Fprintf(&b, "cpu: %s\n", r.Machine.CPU)
	}
	if l := r.limits(); l.Any() {
		fmt.Fprintf(&b, "limits: %s\n", l)
	}
	declared := make(map[string]bool)
	for _, c := range r.Cells {
		for _, m := range c.scenario.Metrics {
			if !declared[m.Unit] {
				declared[m.Unit] = true
				fmt.Fprintf(&b, "Unit %s better=%s\n", m.Unit, m.Better)
			}
		}
	}
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			if run.Result == nil {
				fmt.Fprintf(&b, "# %s %s: %s\n", c.Scenario, c.Subject, run.Error)
				continue
			}
			fmt.Fprintf(&b, "Benchmark%s/subject=%s-%d\t1", c.scenario.Benchmark, c.Subject, r.Machine.Cores)
			for _, m := range c.scenario.Metrics {
				if v := m.Of(*run.Result); m.measured(v) {
					fmt.Fprintf(&b, "\t%.6g %s", v, m.Unit)
				}
			}
			b.WriteString("\n")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("bench: write benchstat lines: %w", err)
	}
	return nil
}
