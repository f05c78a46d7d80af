package chart

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRankPutsTheRestTogether(t *testing.T) {
	shown, rest := Rank([]float64{1, 5, math.NaN(), 3, 5, 2}, 4)
	if !slices.Equal(shown, []int{1, 4, 3}) || !slices.Equal(rest, []int{5, 0, 2}) {
		t.Errorf("got %v and %v", shown, rest)
	}
	shown, rest = Rank([]float64{0, 0, 0}, 3)
	if !slices.Equal(shown, []int{0, 1, 2}) || rest != nil {
		t.Errorf("equal weights: got %v and %v", shown, rest)
	}
}

// TestLayersAreToldApartWithoutColour fills a picture with each layer.
func TestLayersAreToldApartWithoutColour(t *testing.T) {
	for _, g := range graphs() {
		seen := map[string]int{}
		for i := range Layers {
			series := make([]Points, i+1)
			for j := range series {
				series[j] = constant(60, 0)
			}
			series[i] = constant(60, 1e6)
			o := Options{Graph: g, Now: now}
			row := strings.TrimSpace(Area(series, 12, 6, o)[2])
			if before, ok := seen[row]; ok {
				t.Errorf("%s: layers %d and %d look the same: %q", g, before, i, row)
			}
			seen[row] = i
			if key := o.Key(i); !strings.Contains(row, key) {
				t.Errorf("%s: layer %d is drawn as %q, the legend says %q", g, i, row, key)
			}
		}
	}
}

func TestAStackIsAsHighAsTheSum(t *testing.T) {
	var stack []Points
	for range Layers {
		stack = append(stack, constant(60, 1e6))
	}
	one := Area([]Points{constant(60, Layers*1e6)}, 30, 10, Options{Graph: ASCII, Now: now})
	many := Area(stack, 30, 10, Options{Graph: ASCII, Now: now})
	for i := range one {
		top := func(l string) string {
			return strings.NewReplacer("#", "x", "+", "x", "o", "x", "-", "x", ":", "x", ".", "x").Replace(l)
		}
		if top(one[i]) != top(many[i]) {
			t.Errorf("line %d: %q, the sum is %q", i, many[i], one[i])
		}
	}
}

func TestLegends(t *testing.T) {
	entries := []Entry{{"cloud", "1.2 MB/s"}, {"edge\x1b[2J", "3 kB/s"}, {"a-name-of-forty-characters-0123456789-abc", "1 B/s"}, {"d", "0 B/s"}}
	var lines []string
	for _, size := range [][2]int{{20, 1}, {20, 3}, {40, 2}, {100, 1}} {
		for _, g := range graphs() {
			got := Legend(entries, size[0], size[1], Options{Graph: g, Now: now, Window: time.Minute})
			exactly(t, got, size[0], size[1])
			lines = append(lines, got...)
		}
	}
	golden(t, "legend", lines)
	for _, l := range lines {
		if strings.Contains(l, "\x1b") {
			t.Errorf("a name's escape sequence reached the screen: %q", l)
		}
	}
	if got := strings.Join(Legend(entries, 20, 1, Options{}), ""); !strings.Contains(got, "+3") {
		t.Errorf("the legend does not count what it leaves out: %q", got)
	}
}
