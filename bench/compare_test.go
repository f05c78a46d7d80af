package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// streamsReport returns a report of one scenario with a subject for each list of throughputs in
// Gbit/s.
func streamsReport(by map[string][]float64) *Report {
	all := Scenarios()
	sc := all[slices.IndexFunc(all, func(s Scenario) bool { return s.Name == "tcp-1" })]
	sc.Metrics = []Metric{Throughput}
	r := sample()
	r.Cells = nil
	for _, subject := range []string{Postern, Stock, Loopback} {
		values, ok := by[subject]
		if !ok {
			continue
		}
		c := Cell{Scenario: sc.Name, Subject: subject, scenario: sc}
		for _, v := range values {
			one := run(v, 100)
			if v == 0 {
				one = Run{Error: "no such device"}
			}
			c.Runs = append(c.Runs, one)
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func TestCompareTellsChangeFromNoise(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after []float64
		want          Effect
	}{
		{"every run faster", []float64{4, 4.1, 3.9, 4.2, 4, 3.8}, []float64{5, 5.1, 4.9, 5.2, 5, 4.8}, Improved},
		{"every run slower", []float64{5, 5.1, 4.9, 5.2, 5, 4.8}, []float64{4, 4.1, 3.9, 4.2, 4, 3.8}, Worsened},
		{"runs that overlap", []float64{4, 4.1, 3.9, 4.2, 4, 3.8}, []float64{4.1, 4.2, 3.9, 4, 4, 3.9}, Noise},
		{"the same figures", []float64{4, 4, 4, 4}, []float64{4, 4, 4, 4}, Noise},
		{"three runs", []float64{4, 4.1, 3.9}, []float64{5, 5.1, 4.9}, TooFew},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Compare(streamsReport(map[string][]float64{Postern: c.before}), streamsReport(map[string][]float64{Postern: c.after}))
			if len(got.Changes) != 1 || got.Changes[0].Effect != c.want {
				t.Errorf("got %+v, want one change: %s", got.Changes, c.want)
			}
			if len(got.Unlike) > 0 || len(got.Missing) > 0 {
				t.Errorf("got unlike %q and missing %q, want neither", got.Unlike, got.Missing)
			}
		})
	}
}

func TestCompareKnowsWhatIsBetter(t *testing.T) {
	slow := []float64{1, 1.1, 1.2, 1.3}
	fast := []float64{2, 2.1, 2.2, 2.3}
	for _, c := range []struct {
		better        Direction
		before, after []float64
		want          Effect
	}{
		{Higher, slow, fast, Improved},
		{Higher, fast, slow, Worsened},
		{Lower, slow, fast, Worsened},
		{Lower, fast, slow, Improved},
	} {
		if _, got := effect(Metric{Better: c.better}, Summarize(c.before), Summarize(c.after)); got != c.want {
			t.Errorf("%s is better, from %v to %v: got %s, want %s", c.better, c.before, c.after, got, c.want)
		}
	}
}

func TestComparisonTable(t *testing.T) {
	before := streamsReport(map[string][]float64{
		Postern: {4, 4.1, 3.9, 4.2}, Stock: {1, 1.1, 0.9, 1},
	})
	after := streamsReport(map[string][]float64{
		Postern: {5, 5.1, 4.9, 5.2}, Stock: {0, 0, 0, 0}, Loopback: {20, 21, 22, 23},
	})
	after.Machine.CPU, after.Machine.Cores = "Other CPU", 4
	var got bytes.Buffer
	if err := Compare(before, after).WriteTable(&got); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison.table", got.String())
	if !strings.HasPrefix(got.String(), "These reports are not of the same machine") {
		t.Error("comparing reports of two machines gives no warning")
	}
}

func TestChart(t *testing.T) {
	for name, width := range map[string]int{"chart.40": 0, "chart.80": DefaultChart} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := sample().WriteChart(&got, width); err != nil {
				t.Fatal(err)
			}
			golden(t, name, got.String())
			for line := range strings.Lines(got.String()) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > max(width, leastChart) && strings.HasPrefix(line, "  ") {
					t.Errorf("a line of %d characters: %q", n, line)
				}
			}
			if strings.Contains(got.String(), "\x1b") {
				t.Error("the chart has an escape sequence")
			}
		})
	}
}

// golden compares text output with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("differs from %s (-update rewrites it): -want +got:\n%s", file, d)
	}
}
