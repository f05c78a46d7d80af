package path_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
)

// expected is the conformance table: how each pair must connect. D direct, P direct by ordered
// punching, R relayed.
var expected = [...]string{
	"DDDDDD",
	" DDDDD",
	"  DDDD",
	"   DPR",
	"    PR",
	"     R",
}

// limits are the maximum times to connect by each kind of path.
var limits = map[byte]time.Duration{'D': 3 * time.Second, 'P': 10 * time.Second, 'R': 5 * time.Second}

// Each pair is tested with either side as the inviter, and with known and unknown NAT filtering.
// The longest of the four times is printed.
func TestConformance(t *testing.T) {
	var longest [len(kinds)][len(kinds)]time.Duration
	for _, blind := range []bool{false, true} {
		for i, a := range kinds {
			for j, b := range kinds {
				row, column := min(i, j), max(i, j)
				want := expected[row][column]
				t.Run(fmt.Sprintf("%s invites %s, filtering known %v", a.name, b.name, !blind), func(t *testing.T) {
					took := conforms(t, uint64(i*10+j), a, b, blind, want)
					longest[row][column] = max(longest[row][column], took)
				})
			}
		}
	}
	var table strings.Builder
	for i, row := range longest {
		fmt.Fprintf(&table, "%-18s", kinds[i].name)
		for j, took := range row {
			cell := ""
			if j >= i {
				cell = fmt.Sprintf("%c %.2f s", expected[i][j], took.Seconds())
			}
			fmt.Fprintf(&table, " | %-8s", cell)
		}
		table.WriteString("\n")
	}
	t.Logf("time to the path that the table asks for:\n%s", &table)
}

// conforms lets a invite b, and returns how long it took until they used the expected path.
func conforms(t *testing.T, seed uint64, a, b kind, blind bool, want byte) (took time.Duration) {
	inWorld(t, seed, 3000, func(w *world) {
		sa, sb := siteOf(a, 1), siteOf(b, 2)
		sa.blind, sb.blind = blind, blind
		ga, gb := w.gateway("a", sa, seed%2 == 0), w.gateway("b", sb, seed%2 == 1)
		w.meet(ga, gb)
		connected, ok := w.until(5*time.Second, func() bool {
			return bothAre(path.KindDirect, ga, gb)() || bothAre(path.KindRelay, ga, gb)()
		})
		if !ok {
			w.t.Fatalf("not connected at all within 5 s\n%s", explain(ga, gb))
		}
		kind := path.KindDirect
		if want == 'R' {
			kind = path.KindRelay
		}
		rest, ok := w.until(limits[want]-connected, bothAre(kind, ga, gb))
		took = connected + rest
		if !ok {
			w.t.Fatalf("not %s within %v\n%s", kind, limits[want], explain(ga, gb))
		}
		time.Sleep(time.Minute)
		if !bothAre(kind, ga, gb)() {
			w.t.Errorf("a minute later not %s any more\n%s", kind, explain(ga, gb))
		}
	})
	return took
}
