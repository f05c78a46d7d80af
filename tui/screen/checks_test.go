package screen

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// calm is a gateway with only passing checks.
func calm() *fake {
	f := busy()
	f.report = api.CheckReport{Gateway: "edge", At: noon, Checks: []api.Check{
		{Name: "clock", Verdict: api.Verdict{Verdict: api.OK}},
		{Name: "gateway", Peer: "cloud", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.OK}},
	}}
	return f
}

// breaks makes the check of the peer fail.
func (f *fake) breaks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Checks = append([]api.Check(nil), f.report.Checks...)
	f.report.Checks[1].Verdict = api.Verdict{Verdict: api.Error, Code: "PST0101", Stage: "handshake", Cause: "silence", Fix: "let UDP in"}
}

func TestTheWorstCheckIsSelectedUntilOneIsChosen(t *testing.T) {
	s := play(t, calm(), 80, 24, false).press("4")
	s.want("▸ ✓ ok       clock")
	s.gateway.breaks()
	s.pass(2*checksInterval).want("▸ ✗ error    cloud → gateway", "fix:   let UDP in")

	s = play(t, calm(), 80, 24, false).press("4", "j", "k") // clock, and on purpose
	s.gateway.breaks()
	s.pass(2*checksInterval).want("✗ error    cloud → gateway", "▸ ✓ ok       clock")
	s.press("g").want("▸ ✗ error    cloud → gateway")
}

// TestPagesShowAllThatChecksSay pages through checks, some of which are higher than the window.
func TestPagesShowAllThatChecksSay(t *testing.T) {
	const width = 40
	for key, from := range map[string]string{"pgdown": "g", "pgup": "G"} {
		s := play(t, busy(), width, 12, false).press("4", from)
		seen, pages := s.View(), 0
		for before := ""; s.View() != before; pages++ {
			before = s.View()
			if seen += s.press(key).View(); pages > 100 {
				t.Fatalf("%s does not come to an end", key)
			}
		}
		for i := range s.data.report.Checks {
			c := &s.data.report.Checks[i]
			for _, line := range cell.CheckLines(c, cell.Subject(c, true), unmarked(width), s.data.paint, s.data.now, false) {
				if !strings.Contains(seen, line) {
					t.Errorf("%s never shows %q", key, line)
				}
			}
		}
	}
}

// TestTheWindowIsAPieceOfTheList presses keys, clicks and changes the size. The selected check is
// always visible, or a part of it that fills the window, between its neighbours.
func TestTheWindowIsAPieceOfTheList(t *testing.T) {
	const width = 40
	s := play(t, busy(), width, 24, false).press("4")
	v, d, r := s.view().(*checksView), s.data, rand.New(rand.NewPCG(1, 2))
	height := 10
	for step := range 500 {
		var msg tea.Msg
		switch k := "jjjjkkkkgG fbs\r\x00\x01"[r.IntN(17)]; k {
		case 0:
			msg = tea.MouseMsg{Y: r.IntN(height), Button: tea.MouseButtonLeft, Action: tea.MouseActionPress}
		case 1:
			msg = tea.MouseMsg{Button: []tea.MouseButton{tea.MouseButtonWheelUp, tea.MouseButtonWheelDown}[r.IntN(2)]}
		case '\r':
			msg = tea.KeyMsg{Type: tea.KeyEnter}
		case 'f':
			msg = tea.KeyMsg{Type: tea.KeyPgDown}
		case 'b':
			msg = tea.KeyMsg{Type: tea.KeyPgUp}
		case 's':
			msg, height = nil, 1+r.IntN(40)
			v.sortBy(v.columns[r.IntN(len(v.columns))])
		default:
			msg = tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{rune(k)}}
		}
		v.update(msg, d)
		window := strings.Split(v.draw(d, width, height), "\n")
		var all []string
		from, to := 0, 0 // of the selected check
		for i := range v.rows {
			if i == d.checks.at {
				from = len(all)
			}
			if all = append(all, v.lines(d, i)...); i == d.checks.at {
				to = len(all)
			}
		}
		all = exactly(all, width, max(height, len(all)))
		first, last := max(0, to-height), from // The lines at which the window may begin.
		if to-from > height {
			first, last = from, to-height
		}
		found := false
		for top := first; top <= min(last, len(all)-height); top++ {
			found = found || slices.Equal(all[top:top+height], window)
		}
		if !found {
			t.Fatalf("step %d, %v: of the lines\n%s\nit shows\n%s", step, msg, strings.Join(all, "\n"), strings.Join(window, "\n"))
		}
	}
}
