package chart

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

var writeGolden = flag.Bool("update", false, "write the golden files")

// golden compares with a file in testdata, where escape sequences are written as \e and each line
// ends in a bar, so that spaces are visible.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	got := strings.ReplaceAll(strings.Join(lines, "|\n")+"|\n", "\x1b", `\e`)
	file := filepath.Join("testdata", name+".golden")
	if *writeGolden {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with go test ./tui/chart -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func graphs() []Graph { return []Graph{Braille, Block, ASCII} }

// wave returns a point a second for the last n seconds, without those from silent[0] to silent[1]
// seconds ago.
func wave(n int, amplitude, phase float64, silent ...int) Points {
	return func(yield func(int64, float64) bool) {
		for back := n; back >= 0; back-- {
			if len(silent) == 2 && back <= silent[0] && back >= silent[1] {
				continue
			}
			rate := amplitude * (1 + math.Sin(float64(n-back)/40+phase))
			if !yield(now.Add(-time.Duration(back)*time.Second).UnixMilli(), rate) {
				return
			}
		}
	}
}

// constant returns a point a second with one rate.
func constant(n int, rate float64) Points {
	return func(yield func(int64, float64) bool) {
		for back := n; back >= 0; back-- {
			if !yield(now.Add(-time.Duration(back)*time.Second).UnixMilli(), rate) {
				return
			}
		}
	}
}

// peers returns a stack of more series than there are layers.
func peers() []Points {
	out := []Points{wave(3600, 4e5, 0, 260, 200), wave(3600, 3e5, 1)}
	for i := range Layers - len(out) {
		out = append(out, wave(3600, 1e5, float64(2+i)))
	}
	return out
}

// exactly reports lines that are not width cells wide, and a number other than height.
func exactly(t *testing.T, lines []string, width, height int) {
	t.Helper()
	if len(lines) != max(0, height) && width > 0 {
		t.Fatalf("%d lines, want %d", len(lines), height)
	}
	for i, l := range lines {
		if w := ansi.StringWidth(l); w != width {
			t.Fatalf("line %d of %d × %d is %d cells wide: %q", i, width, height, w, l)
		}
		if strings.ContainsAny(l, "\n\r\t") {
			t.Fatalf("line %d breaks the line: %q", i, l)
		}
	}
}

func TestAreasAtManySizes(t *testing.T) {
	for _, size := range [][2]int{{20, 3}, {40, 6}, {80, 12}, {120, 20}} {
		for _, g := range graphs() {
			o := Options{Graph: g, Now: now, Window: 10 * time.Minute, Title: "rx"}
			name := fmt.Sprintf("%dx%d-%s", size[0], size[1], g)
			one := Area(peers()[:1], size[0], size[1], o)
			exactly(t, one, size[0], size[1])
			golden(t, "area-"+name, one)
			many := Area(peers(), size[0], size[1], o)
			exactly(t, many, size[0], size[1])
			golden(t, "stack-"+name, many)
		}
	}
}

func TestColourAddsNothingButColour(t *testing.T) {
	for _, g := range graphs() {
		o := Options{Graph: g, Now: now, Window: time.Hour, Title: "tx", Tint: Magenta}
		bare := Area(peers(), 80, 12, o)
		o.Color = true
		coloured := Area(peers(), 80, 12, o)
		golden(t, "stack-80x12-color-"+string(g), coloured)
		for i := range coloured {
			if coloured[i] == bare[i] {
				t.Errorf("line %d has no colour", i)
			}
			if got := ansi.Strip(coloured[i]); got != bare[i] {
				t.Errorf("line %d says more than without colour:\n%q\n%q", i, got, bare[i])
			}
		}
	}
}

func TestWindowsHaveRoundTimes(t *testing.T) {
	for window, want := range map[time.Duration]string{
		time.Minute:      "-50s -40s -30s -20s -10s now",
		10 * time.Minute: "-10m -8m -6m -4m -2m now",
		time.Hour:        "-1h -50m -40m -30m -20m -10m now",
	} {
		lines := Area(peers()[:1], 84, 8, Options{Now: now, Window: window})
		got := strings.Join(strings.Fields(lines[len(lines)-1]), " ")
		if !strings.HasSuffix(got, want) {
			t.Errorf("window %s has the labels %q, want %q", window, got, want)
		}
	}
}

// TestASizeIsKeptWhateverIsDrawn draws random samples, many of which are no rates, at random sizes.
func TestASizeIsKeptWhateverIsDrawn(t *testing.T) {
	odd := []float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, math.MaxFloat64,
		math.SmallestNonzeroFloat64, 999.5, 1e18}
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() Points {
		n, spread := rng.IntN(300), 1+rng.Int64N(8_000_000)
		type point struct {
			at   int64
			rate float64
		}
		var all []point
		for range n {
			v := rng.ExpFloat64() * math.Pow(10, float64(rng.IntN(15)))
			if rng.IntN(4) == 0 {
				v = odd[rng.IntN(len(odd))]
			}
			all = append(all, point{now.UnixMilli() + 1000 - rng.Int64N(spread), v})
		}
		if rng.IntN(5) != 0 { // Else out of order.
			slices.SortFunc(all, func(a, b point) int { return int(a.at - b.at) })
		}
		return func(yield func(int64, float64) bool) {
			for _, p := range all {
				if !yield(p.at, p.rate) {
					return
				}
			}
		}
	}
	windows := []time.Duration{0, 1, time.Second, time.Minute, 10 * time.Minute, time.Hour, 1 << 62}
	for range 300 {
		o := Options{
			Graph: append(graphs(), "", "other")[rng.IntN(5)], Color: rng.IntN(2) == 0, Now: now,
			Window: windows[rng.IntN(len(windows))], Title: []string{"", "rx", "long title", "\x1b[2J"}[rng.IntN(4)],
			Tint: Tint(rng.IntN(9)), NoTime: rng.IntN(3) == 0,
		}
		var stack []Points
		var entries []Entry
		for range rng.IntN(9) {
			stack = append(stack, random())
			entries = append(entries, Entry{strings.Repeat("名\x1b", rng.IntN(12)), "1 B/s"})
		}
		width, height := rng.IntN(130), rng.IntN(40)
		exactly(t, Area(stack, width, height, o), width, height)
		exactly(t, Legend(entries, width, height, o), width, height)
		points := random()
		if got := ansi.StringWidth(Sparkline(points, o.Now, o.Window, width, o.Graph, cell.Bare)); got != width {
			t.Fatalf("a sparkline of %d cells is %d wide", width, got)
		}
		f := FiguresOf(points, o.Now, o.Window)
		if f.Max < f.Mean*(1-1e-9) || f.Mean < 0 || math.IsInf(f.Max, 0) {
			t.Fatalf("figures %+v of %v", f, o.Window)
		}
	}
}

func TestAreaOfNothing(t *testing.T) {
	for _, stack := range [][]Points{nil, {nil}, {constant(0, math.NaN())}} {
		lines := Area(stack, 30, 6, Options{Now: now})
		exactly(t, lines, 30, 6)
		for _, l := range lines[:4] {
			if _, plot, _ := strings.Cut(l, "│"); strings.TrimSpace(plot) != "" {
				t.Errorf("something is drawn of nothing: %q", l)
			}
		}
	}
	if got := Area(peers(), 0, 5, Options{Now: now}); got != nil {
		t.Errorf("a picture without width is %q", got)
	}
}

func TestZeroIsALineAndSilenceIsNone(t *testing.T) {
	for g, want := range map[Graph]string{Braille: "⣀⣀⣀", Block: "▁▁▁", ASCII: "___"} {
		zero := Sparkline(constant(60, 0), now, time.Minute, 10, g, cell.Bare)
		if !strings.Contains(zero, want) {
			t.Errorf("%s: a rate of zero is %q", g, zero)
		}
		if silent := Sparkline(nil, now, time.Minute, 10, g, cell.Bare); silent != strings.Repeat(" ", 10) {
			t.Errorf("%s: silence is %q", g, silent)
		}
		last := Area([]Points{constant(60, 0)}, 10, 3, Options{Graph: g, Now: now})[2]
		if strings.TrimSpace(last) == "" {
			t.Errorf("%s: an area of zero shows nothing", g)
		}
	}
}

func TestSparklines(t *testing.T) {
	for _, g := range graphs() {
		var lines []string
		for _, n := range []int{1, 8, 20} {
			lines = append(lines, Sparkline(peers()[0], now, 10*time.Minute, n, g, cell.Bare),
				Spark([]float64{1, 2, 3, math.NaN(), 5, 6, 7, 8}, n, g, cell.Bare))
		}
		golden(t, "spark-"+string(g), lines)
	}
}

func BenchmarkArea(b *testing.B) {
	stack := []Points{wave(600, 4e5, 0)}
	b.ReportAllocs()
	for b.Loop() {
		Area(stack, 120, 30, Options{Now: now, Window: 10 * time.Minute, Color: true})
	}
}

// With gradients a cell's colour shows its rate; the characters stay the same.
func TestChartsAreShadedByTheRate(t *testing.T) {
	g := cell.Gradient{Low: ansi.RGBColor{R: 0x10}, High: ansi.RGBColor{R: 0xf0}}
	low, high := "\x1b[38;2;16;0;0m", "\x1b[38;2;240;0;0m"
	o := Options{Graph: Block, Color: true, Now: now, NoTime: true}
	series := []Points{constant(60, 8e5)}
	flat := Area(series, 20, 8, o)
	o.Gradients = []cell.Gradient{g}
	shaded := Area(series, 20, 8, o)
	if ansi.Strip(strings.Join(shaded, "\n")) != ansi.Strip(strings.Join(flat, "\n")) {
		t.Errorf("shades change more than colours:\n%s", strings.Join(shaded, "\n"))
	}
	top, bottom := slices.IndexFunc(shaded, func(l string) bool { return strings.Contains(l, "█") }), len(shaded)-1
	if !strings.Contains(shaded[bottom], "\x1b[38;2;48;0;0m") || shaded[top] == shaded[bottom] || strings.Contains(strings.Join(flat, ""), "38;2") {
		t.Errorf("the rows are not shaded by the rate:\n%q\n%q", shaded, flat)
	}
	paint := cell.Dark.Shaded([]cell.Gradient{g})
	if got, want := Spark([]float64{0, 5, 5, 10, math.NaN()}, 5, ASCII, paint.InTrueColor()), low+"_\x1b[m\x1b[38;2;144;0;0m==\x1b[m"+high+"#\x1b[m"+low+" \x1b[m"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, want := Spark([]float64{0, 10}, 2, ASCII, paint), paint.Text(cell.Second, "_#"); got != want {
		t.Errorf("without so many colours: got %q, want %q", got, want)
	}
}
