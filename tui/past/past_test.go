package past_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
	"github.com/postern-dev/postern/tui/past"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// outage is an hour in which a peer fails for five minutes, and comes back over a relay.
func outage() *api.PeerHistory {
	at := func(m int) time.Time { return noon.Add(time.Duration(m-60) * time.Minute) }
	back := at(35)
	all := func(o api.Outcome) api.Outcomes { return api.Outcomes{Auth: o, APIServer: o, Gateway: o} }
	lost := 0.02
	return &api.PeerHistory{Peer: "cloud", Points: []api.HistoryPoint{
		{At: at(10), Seconds: 1200, State: api.StateConnected, Path: api.PathDirect, RTTSeconds: 0.012, Outbound: all(api.OK), Inbound: all(api.OK)},
		{At: at(30), Seconds: 300, State: api.StateFailed, Path: api.PathNone, Outbound: all(api.Unknown), Inbound: all(api.Unknown)},
		{At: at(35), Seconds: 1501, State: api.StateConnected, Path: api.PathRelay, RTTSeconds: 0.2, LossRatio: &lost, RxBytesPerSecond: 1e6,
			Outbound: api.Outcomes{Auth: api.OK, APIServer: api.Warning, Gateway: api.OK}, Inbound: api.Outcomes{Auth: api.OK, APIServer: api.Off, Gateway: api.OK}},
	}, Events: []api.HistoryEvent{
		{At: at(10), Kind: api.EventJoined, Event: "joined"},
		{At: at(30), Until: &back, Kind: api.EventVerdict, Code: "PST0101", Check: "gateway", Direction: api.DirectionOutbound, Verdict: api.Error, Event: "no answer", Reason: "why\x1b[2J"},
		{At: at(30), Kind: api.EventPath, Event: "lost", Reason: "silent"},
		{At: at(35), Kind: api.EventRestart, Event: "the peer was restarted"},
		{At: at(35), Kind: "new kind", Event: "of a newer gateway"},
	}}
}

func drawing(g chart.Graph) past.Drawing {
	return past.Drawing{From: noon.Add(-time.Hour), To: noon, Graph: g}
}

func TestStripsShowWhatWas(t *testing.T) {
	lines := drawing(chart.ASCII).Strips(outage(), 80, past.AllStrips)
	// 60 columns, a minute each.
	for name, want := range map[string]string{
		"state":  strings.Repeat(" ", 10) + strings.Repeat("=", 20) + "@@@@@" + strings.Repeat("~", 25),
		"→api":   strings.Repeat(" ", 10) + strings.Repeat("=", 20) + ",,,,," + strings.Repeat("%", 25),
		"←api":   strings.Repeat(" ", 10) + strings.Repeat("=", 20) + ",,,,," + strings.Repeat("_", 25),
		"events": strings.Repeat(" ", 10) + "J" + strings.Repeat(" ", 19) + "V    R",
		"rtt":    strings.Repeat(" ", 10) + strings.Repeat(".", 20) + "     " + strings.Repeat("#", 25) + " max 200 ms",
	} {
		found := ""
		for _, l := range lines {
			if rest, ok := strings.CutPrefix(l, name); ok && strings.HasPrefix(rest, " ") {
				found = strings.TrimRight(rest[past.LabelWidth-ansi.StringWidth(name):], " ")
			}
		}
		if found != want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, found, want)
		}
	}
	if axis := lines[len(lines)-1]; !strings.Contains(axis, "+11:30") {
		t.Errorf("the axis is %q", axis)
	}
}

// Each of the six directions has a strip of its own, in which a piece of time has the worst of what there was.
func TestStripsOfVerdicts(t *testing.T) {
	d := drawing(chart.ASCII)
	pieces := history.Columns(outage().Points, d.From, d.To, 6)
	got := map[string]string{}
	for _, s := range append([]past.Strip{past.State}, past.Verdicts...) {
		got[s.Name] = d.Strip(s, pieces)
	}
	want := map[string]string{"state": " ==@~~", "→auth": " ==,==", "→api": " ==%%%", "→gw": " ==,==", "←auth": " ==,==", "←api": " ==,__", "←gw": " ==,=="}
	if !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What is found beside the endpoints is a fault of the way to the peer's gateway, in strips and at a
// moment alike.
func TestStripsHaveWhatIsFoundBeside(t *testing.T) {
	p := outage()
	p.Points[2].Outbound.Beside = api.Error
	d := drawing(chart.ASCII)
	pieces := history.Columns(p.Points, d.From, d.To, 6)
	for _, s := range append([]past.Strip{past.State}, past.Verdicts...) {
		want := map[string]string{"state": " ==@%%", "→gw": " ==@@@", "←gw": " ==,=="}[s.Name]
		if got := d.Strip(s, pieces); want != "" && got != want {
			t.Errorf("%s: got %q, want %q", s.Name, got, want)
		}
	}
	then := strings.Join(d.Then(p, noon, 80), "\n")
	for _, want := range []string{"! faulty", "→gw ✗ error", "←gw ✓ ok"} {
		if !strings.Contains(then, want) {
			t.Errorf("%q is not in\n%s", want, then)
		}
	}
}

func TestStripsFitTheirRoom(t *testing.T) {
	for _, g := range []chart.Graph{chart.Braille, chart.Block, chart.ASCII} {
		for _, width := range []int{1, 7, 20, 21, 40, 80, 200} {
			for height := range 20 {
				d := drawing(g)
				d.Cursor, d.Paint = noon.Add(-20*time.Minute), cell.Colors(height%2 == 0)
				lines := d.Strips(outage(), width, height)
				if len(lines) > max(height, 3) {
					t.Fatalf("%d lines in %d", len(lines), height)
				}
				for _, l := range append(append(lines, d.Then(outage(), d.Cursor, width)...), d.Event(&outage().Events[1], width)...) {
					if ansi.StringWidth(l) > width {
						t.Fatalf("%q is wider than %d", l, width)
					}
					if strings.Contains(l, "\x1b[2J") {
						t.Fatalf("the terminal is told by a peer: %q", l)
					}
				}
			}
		}
	}
}

func TestWithoutUnicodeStripsHaveNone(t *testing.T) {
	for _, l := range drawing(chart.ASCII).Strips(outage(), 80, past.AllStrips) {
		if text := strings.TrimLeft(l, "→←"); strings.ContainsFunc(text, func(r rune) bool { return r > 127 }) {
			t.Errorf("%q", l)
		}
	}
}

func TestHowItWasThen(t *testing.T) {
	for at, want := range map[time.Duration]string{
		-55 * time.Minute: "nothing is known of this time",
		-40 * time.Minute: "● connected · direct · rtt 12 ms · loss not known · rx 0 B/s tx 0 B/s\n→auth ✓ ok · →api ✓ ok · →gw ✓ ok\n←auth ✓ ok · ←api ✓ ok · ←gw ✓ ok",
		-28 * time.Minute: "✗ failed · none · rtt - · loss not known · rx 0 B/s tx 0 B/s\n→auth ? unknown · →api ? unknown · →gw ? unknown\n←auth ? unknown · ←api ? unknown · ←gw ? unknown\n" +
			"✗ PST0101 →gateway no answer: why�[2J",
		0: "● connected · relay · rtt 200 ms · loss 2.0% · rx 1.0 MB/s tx 0 B/s\n→auth ✓ ok · →api ! warning · →gw ✓ ok\n←auth ✓ ok · ←api - off · ←gw ✓ ok",
	} {
		if got := strings.Join(drawing(chart.Braille).Then(outage(), noon.Add(at), 80), "\n"); got != want {
			t.Errorf("%v before the end:\ngot  %s\nwant %s", -at, got, want)
		}
	}
}

func TestColumnsAndMomentsAgree(t *testing.T) {
	d := drawing(chart.Braille)
	for _, n := range []int{1, 7, 60, 181} {
		for i := range n {
			if got, in := d.Column(d.Moment(i, n), n); !in || got != i {
				t.Fatalf("the moment of column %d of %d is in column %d", i, n, got)
			}
		}
	}
	if _, in := d.Column(noon.Add(time.Second), 60); in {
		t.Error("what comes after the end is in a column")
	}
}
