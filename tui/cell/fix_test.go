package cell

import (
	"slices"
	"strings"
	"testing"
)

func TestFixLines(t *testing.T) {
	for _, tc := range []struct {
		what, fix string
		width     int
		want      []string
	}{
		{"one step", "start it, or correct its address", 40, []string{"fix: start it, or correct its address"}},
		{"a command in a sentence", "run `postern check` there", 40, []string{"fix: run `postern check` there"}},
		{"steps, with commands", "run `postern check` there; if it fails, let UDP in here: `nft accept` (in a cloud; or anywhere), and out: `nft out`. Else start it.", 60, []string{
			"fix: 1. run `postern check` there",
			"     2. if it fails, let UDP in here:",
			"          nft accept",
			"        (in a cloud; or anywhere), and out:",
			"          nft out",
			"     3. Else start it.",
		}},
		{"a long command", "run: `nft insert rule inet filter input accept`", 24, []string{
			"fix: run:", "       nft insert rule", "         inet filter", "         input accept"}},
		{"addresses, brackets and what separates no steps", "set spec.a: [\"IP:1; x\"] (e. g. here; there); `a; b. c: `, 198.51.100.7:1.", 80, []string{
			"fix: 1. set spec.a: [\"IP:1; x\"] (e. g. here; there)", "     2. `a; b. c: `, 198.51.100.7:1."}},
		{"a backtick that nothing closes", "run: `nft; x. y", 40, []string{"fix: run: `nft; x. y"}},
		{"a terminal without a width", "a; b: `c`", 0, []string{"fix: a; b: `c`"}},
		{"nothing", "", 40, nil},
	} {
		t.Run(tc.what, func(t *testing.T) {
			if got := FixLines("fix: ", tc.fix, tc.width); !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// Whatever a fix says, none of its words is lost.
func FuzzFixLines(f *testing.F) {
	f.Add("run `a b`; or: `c`. D (e; f), `g")
	f.Add(") ] ; . ` ` : `")
	f.Fuzz(func(t *testing.T, fix string) {
		fix = Printable(fix)
		marks := strings.NewReplacer("`", "", ";", "", ",", "", ".", "", " ", "")
		got := ""
		for _, s := range steps(fix) {
			for _, p := range s {
				got += p.text
			}
		}
		if marks.Replace(got) != marks.Replace(fix) {
			t.Errorf("of %q there is %q", fix, got)
		}
	})
}
