package chart

import (
	"math"
	"slices"
	"testing"
	"time"
)

// same compares rates, NaN with NaN.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

// at returns points at seconds before now.
func at(points map[float64]float64) Points {
	return func(yield func(int64, float64) bool) {
		var order []float64
		for back := range points {
			order = append(order, -back)
		}
		slices.Sort(order)
		for _, o := range order {
			if !yield(now.UnixMilli()+int64(o*1000), points[-o]) {
				return
			}
		}
	}
}

func TestBins(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name   string
		points map[float64]float64
		window time.Duration
		want   []float64
	}{
		{"a column is the mean of its points", map[float64]float64{8: 10, 7: 20, 2: 3, 1: 5}, 20 * time.Second, []float64{nan, 15, 4, 5}},
		{"a point holds for a while", map[float64]float64{6: 1}, 8 * time.Second, []float64{1, 1, nan, nan}},
		{"a point before the window holds into it", map[float64]float64{4: 7}, 4 * time.Second, []float64{7, 7, nan, nan}},
		{"no measurement ends what holds", map[float64]float64{3: 1, 2: nan}, 4 * time.Second, []float64{1, nan, nan, nan}},
		{"what comes after now is not there yet", map[float64]float64{-1: 9}, 4 * time.Second, []float64{nan, nan, nan, nan}},
		{"negative is zero", map[float64]float64{0: -5}, 4 * time.Second, []float64{nan, nan, nan, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Bins(at(tt.points), now, tt.window, len(tt.want))
			if !same(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestColumnsStandStillWhileTimeGoesOn(t *testing.T) {
	const n = 60
	before := Bins(peers()[0], now, 10*time.Minute, n) // columns of 10 s
	for ahead := time.Second; ahead < 10*time.Second; ahead += time.Second {
		after := Bins(peers()[0], now.Add(ahead), 10*time.Minute, n)
		if !same(before[:n-1], after[:n-1]) {
			t.Fatalf("columns changed within %s", ahead)
		}
	}
	after := Bins(peers()[0], now.Add(10*time.Second), 10*time.Minute, n)
	if !same(before[1:n-1], after[:n-2]) {
		t.Error("columns did not move by one when the duration of one had passed")
	}
}

func TestFigures(t *testing.T) {
	nan := math.NaN()
	for name, tt := range map[string]struct {
		points map[float64]float64
		want   Figures
	}{
		"nothing":    {nil, Figures{nan, nan, nan}},
		"fresh":      {map[float64]float64{5: 10, 2: 50, 0: 30}, Figures{30, 30, 50}},
		"gone quiet": {map[float64]float64{5: 10, 4: 50}, Figures{nan, 30, 50}},
		"too old":    {map[float64]float64{100: 10}, Figures{nan, nan, nan}},
		"no rates":   {map[float64]float64{3: nan, 2: math.Inf(1), 1: 4}, Figures{4, 4, 4}},
	} {
		got := FiguresOf(at(tt.points), now, time.Minute)
		if !same([]float64{got.Now, got.Mean, got.Max}, []float64{tt.want.Now, tt.want.Mean, tt.want.Max}) {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestScalesAreRound(t *testing.T) {
	for _, tt := range []struct {
		largest float64
		steps   int
		top     string
		step    string
	}{
		{0, 3, "1 kB/s", "500 B/s"},
		{math.NaN(), 3, "1 kB/s", "500 B/s"},
		{999, 1, "1 kB/s", "1 kB/s"},
		{1_240_000, 4, "1.5 MB/s", "500 kB/s"},
		{1_000_000, 4, "1 MB/s", "250 kB/s"},
		{3e9, 10, "3 GB/s", "500 MB/s"},
		{1e300, 2, "1 EB/s", "500 PB/s"},
	} {
		s := scaleFor(tt.largest, tt.steps)
		if label(s.top) != tt.top || label(s.step) != tt.step {
			t.Errorf("%g in %d steps: %s by %s, want %s by %s", tt.largest, tt.steps, label(s.top), label(s.step), tt.top, tt.step)
		}
	}
}

func TestRate(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 B/s", 999: "999 B/s", 1234: "1.2 kB/s", 123_456_789: "123 MB/s", -1: "0 B/s", math.Inf(1): "-",
	} {
		if got := Rate(v); got != want {
			t.Errorf("Rate(%v) = %q, want %q", v, got, want)
		}
	}
}
