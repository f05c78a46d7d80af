package cell

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

func TestFixLines(t *testing.T) {
	for _, tc := range []struct {
		what  string
		fix   api.Steps
		width int
		want  []string
	}{
		{"one step is one, whatever its words are", api.Steps{{Text: "set a: [\"IP:1; x\"] (e. g. here. Or there); run: `b; c. d`"}}, 80,
			[]string{"fix: set a: [\"IP:1; x\"] (e. g. here. Or there); run: `b; c. d`"}},
		{"steps, commands and an alternative", api.Steps{{Text: "run it there", Command: "postern check"}, {Text: "let UDP in here", Command: "nft accept"},
			{Text: "let nothing in", Or: true}, {Text: "start it"}}, 60, []string{
			"fix: 1. run it there:",
			"          postern check",
			"     2. let UDP in here:",
			"          nft accept",
			"     or let nothing in",
			"     3. start it",
		}},
		{"a long command", api.Steps{{Text: "run", Command: "nft insert rule inet filter input accept"}}, 24, []string{
			"fix: run:", "       nft insert rule", "         inet filter", "         input accept"}},
		{"what a screen would act on", api.Steps{{Text: "a\x1b[2J", Command: "b\nc"}}, 40, []string{"fix: a\ufffd[2J:", "       b\ufffdc"}},
		{"a terminal without a width", api.Steps{{Text: "a"}, {Text: "b", Command: "c", Or: true}}, 0, []string{"fix: a; or b: `c`"}},
		{"nothing", nil, 40, nil},
	} {
		t.Run(tc.what, func(t *testing.T) {
			if got := FixLines("fix: ", tc.fix, tc.width); !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}
