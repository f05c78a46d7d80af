package cell

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

func TestTablesDropColumnsByRank(t *testing.T) {
	text := func(s string) func(int) Cell { return func(int) Cell { return Cell{Text: s} } }
	columns := []Column[int]{
		{Title: "NAME", Cell: text("a-name-of-thirty-characters-xy")},
		{Title: "SECOND", Rank: 1, Cell: text("x")},
		{Title: "FOURTH", Rank: 3, Cell: text("x")},
		{Title: "THIRD", Rank: 2, Max: 8, Cell: text("longer than eight")},
	}
	for _, tc := range []struct {
		width int
		want  []string
		row   string
	}{
		{0, []string{"NAME", "SECOND", "FOURTH", "THIRD"}, "a-name-of-thirty-characters-xy  x       x       longer …"},
		{60, []string{"NAME", "SECOND", "FOURTH", "THIRD"}, "a-name-of-thirty-ch…  x       x       longer …"},
		{45, []string{"NAME", "SECOND", "FOURTH", "THIRD"}, "a-name-of-thir…  x       x       longer …"},
		{35, []string{"NAME", "SECOND", "THIRD"}, "a-name-of-t…  x       longer …"},
		{25, []string{"NAME", "SECOND"}, "a-name-of-t…  x"},
		{5, []string{"NAME"}, "a-name-of-t…"},
	} {
		table := Layout(columns, []int{1, 2}, tc.width)
		if got := table.Shown(); !slices.Equal(got, tc.want) {
			t.Errorf("width %d: columns %v, want %v", tc.width, got, tc.want)
		}
		if got := table.Row(Bare, 1); got != tc.row {
			t.Errorf("width %d: row %q, want %q", tc.width, got, tc.row)
		}
		if got := table.Complete(); got != (len(tc.want) == len(columns)) {
			t.Errorf("width %d: complete is %v", tc.width, got)
		}
	}
}

func TestColumnsKeepTheirLeastWidth(t *testing.T) {
	table := Layout([]Column[string]{
		{Title: "A", Cell: func(s string) Cell { return Cell{Text: s} }},
		{Title: "B", Rank: 1, Min: 6, Right: true, Cell: func(s string) Cell { return Cell{Text: s} }},
	}, []string{"x", "門"}, 0)
	if got, want := table.Row(Bare, 0), "x        x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := table.Row(Bare, 1), "門      門"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPadIsExact(t *testing.T) {
	for _, s := range []string{"", "a", "abcdef", "門門門", "a門門"} {
		for width := range 8 {
			if got := ansi.StringWidth(Pad(s, width)); got != width {
				t.Errorf("Pad(%q, %d) is %d wide", s, width, got)
			}
		}
	}
}

func TestWrapLosesNoWord(t *testing.T) {
	text := "open UDP port 51820 towards 198.51.100.7 on the firewall there"
	for width := 12; width < 80; width++ {
		lines := Wrap("fix: ", text, width, "     ")
		if got := strings.Join(strings.Fields(strings.Join(lines, " ")), " "); got != "fix: "+text && width >= 5+len("198.51.100.7") {
			t.Errorf("width %d: got %q", width, got)
		}
		for _, l := range lines {
			if ansi.StringWidth(l) > width {
				t.Errorf("width %d: %q", width, l)
			}
		}
	}
}

func TestChecksAreOrderedByWhatAsksForAttention(t *testing.T) {
	check := func(o api.Outcome, dependsOn string) *api.Check {
		return &api.Check{Verdict: api.Verdict{Verdict: o}, DependsOn: dependsOn}
	}
	want := []*api.Check{check(api.Error, ""), check(api.Warning, ""), check(api.Unknown, ""), check("new", ""), check(api.Unknown, "gateway"), check(api.OK, ""), check(api.Off, "")}
	got := []*api.Check{want[6], want[4], want[2], want[0], want[5], want[3], want[1]}
	slices.SortStableFunc(got, CompareChecks)
	for i := range want {
		if severity(got[i]) != severity(want[i]) {
			t.Errorf("place %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestSubjects(t *testing.T) {
	for _, tc := range []struct {
		check    api.Check
		withPeer bool
		want     string
	}{
		{api.Check{Name: "exposure", Direction: api.DirectionOwn}, true, "exposure"},
		{api.Check{Name: "auth", Peer: "cloud\n", Direction: api.DirectionOutbound}, true, "cloud� → auth"},
		{api.Check{Name: "inbound-auth", Peer: "cloud", Direction: api.DirectionInbound}, true, "cloud ← auth"},
		{api.Check{Name: "inbound-auth", Peer: "cloud", Direction: api.DirectionInbound}, false, "← auth"},
	} {
		if got := Subject(&tc.check, tc.withPeer); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSummaries(t *testing.T) {
	for want, s := range map[string]api.CheckSummary{
		"nothing was checked":                          {},
		"1 error, 1 warning, 1 unknown, 1 ok, 1 off":   {Error: 1, Warning: 1, Unknown: 1, OK: 1, Off: 1},
		"2 errors, 3 warnings, 4 unknown, 5 ok, 6 off": {Error: 2, Warning: 3, Unknown: 4, OK: 5, Off: 6},
		"12 ok": {OK: 12},
	} {
		if got := CheckSummary(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A word that does not fit on a line is cut after a punctuation mark, and continues below the
// indent.
func TestWrapCutsLongWords(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"see spec.services.auth.issuer.localCA.certFile there", []string{"fix: see", "     spec.services.auth.", "     issuer.localCA.", "     certFile there"}},
		{"3nfoT82SubpuH2lPqE2ZUN9I2Q1zXz", []string{"fix: 3nfoT82SubpuH2lPqE2ZU", "     N9I2Q1zXz"}},
	} {
		if got := Wrap("fix: ", c.text, 26, "     "); !slices.Equal(got, c.want) {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}
