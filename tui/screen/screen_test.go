package screen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/theme"
	"github.com/postern-dev/postern/tunnel/foreign"
)

var writeGolden = flag.Bool("update", false, "write the golden files")

// stage is a screen without a terminal: its clock is set to noon, and commands run when the test
// says so.
type stage struct {
	*testing.T
	*model
	gateway *fake
	clock   time.Time
	written strings.Builder
}

// play opens a screen of this size over a gateway and takes the first snapshot.
func play(t *testing.T, f *fake, width, height int, color bool) *stage {
	t.Helper()
	s := &stage{T: t, gateway: f, clock: noon}
	tasks := newTasks(context.Background())
	t.Cleanup(tasks.close)
	s.model = newModel(Options{Source: f, Operator: f, Color: color, Out: &s.written, Now: func() time.Time { return s.clock }}, tasks)
	s.Update(tea.WindowSizeMsg{Width: width, Height: height})
	s.do(s.poll())
	s.remember()
	return s
}

// remember requests the history that the frame lacks, as the program does with the next snapshot.
func (s *stage) remember() {
	s.View()
	if s.data.offered.ask(s.clock) {
		list, err := s.gateway.ClusterServices(context.Background(), "")
		if s.data.offered.err = err; err == nil {
			s.data.offered.took(list, s.clock)
		}
		s.View()
	}
	asks := s.data.past.ask(s.clock)
	if asks.hours != nil || asks.timeline != nil {
		s.data.past.took(asks.fetch(context.Background(), s.gateway))
		s.View()
	}
}

// do runs commands and handles their messages, except those that wait.
func (s *stage) do(cmd tea.Cmd) {
	s.Helper()
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil, tickMsg, spinMsg:
	default:
		// Batches and sequences; the library does not export the type of the latter.
		if list := reflect.ValueOf(msg); list.Type().ConvertibleTo(reflect.TypeFor[[]tea.Cmd]()) {
			for _, c := range list.Convert(reflect.TypeFor[[]tea.Cmd]()).Interface().([]tea.Cmd) {
				s.do(c)
			}
			return
		}
		_, next := s.Update(msg)
		s.do(next)
	}
}

// press types keys: names such as enter, or single characters.
func (s *stage) press(names ...string) *stage {
	s.Helper()
	named := map[string]tea.KeyType{
		"enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "shift+tab": tea.KeyShiftTab, "up": tea.KeyUp, "down": tea.KeyDown,
		"left": tea.KeyLeft, "right": tea.KeyRight, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
		"backspace": tea.KeyBackspace, "ctrl+c": tea.KeyCtrlC, "ctrl+u": tea.KeyCtrlU, "ctrl+w": tea.KeyCtrlW,
	}
	for _, name := range names {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(name)}
		if k, ok := named[name]; ok {
			msg = tea.KeyMsg{Type: k}
		}
		_, cmd := s.Update(msg)
		s.View() // Lists know what fits once they are drawn.
		s.do(cmd)
		s.remember()
		if s.mode == modeConfirm && !s.readable() { // let it be readable
			s.clock = s.proposal.asked.Add(readTime)
		}
	}
	return s
}

// typed presses a key for each character.
func (s *stage) typed(text string) *stage {
	for _, r := range text {
		s.press(string(r))
	}
	return s
}

// pass lets time pass, one tick.
func (s *stage) pass(d time.Duration) *stage {
	s.clock = s.clock.Add(d)
	s.Update(nil)
	s.do(s.poll())
	return s
}

// golden compares with a file in testdata, where escape sequences are written as \e, so that
// differences are readable.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, "\x1b", `\e`) + "\n"
	file := filepath.Join("testdata", name+".golden")
	if *writeGolden {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with go test ./tui/screen -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

// fits checks that a frame is exactly as high as the screen, that no line is wider, and that
// colours are the only control sequences.
func fits(t *testing.T, picture string, width, height int) {
	t.Helper()
	lines := strings.Split(picture, "\n")
	if len(lines) != height {
		t.Errorf("%d lines on a screen of %d:\n%s", len(lines), height, picture)
	}
	for i, line := range lines {
		if w := ansi.StringWidth(line); w > width {
			t.Errorf("line %d is %d wide on a screen of %d: %q", i+1, w, width, line)
		}
		for _, r := range ansi.Strip(line) {
			if !foreign.Shown(r) {
				t.Errorf("line %d holds %U: %q", i+1, r, line)
			}
		}
		for _, seq := range strings.Split(line, "\x1b")[1:] {
			colorBlind := []string{"[38;5;74m", "[38;5;227m", "[38;5;202;1m"}
			if !slices.Contains(append(colorBlind, "[m", "[1m", "[2m", "[7m", "[1;7m", "[30m", "[31m", "[32m", "[33m", "[34m", "[35m", "[36m", "[37m", "[37;40m"), seq[:strings.Index(seq, "m")+1]) {
				t.Errorf("line %d: the sequence %q is not of the terminal's own first colours, nor of a theme", i+1, seq)
			}
		}
	}
}

// Common sizes: a corner and half a screen beside an editor, the classic terminal, a wide one, and
// all of a large screen.
func sizes() [][2]int { return [][2]int{{40, 10}, {40, 15}, {80, 24}, {120, 40}, {200, 60}} }

// Every view has pictures, so that no new one is forgotten.
func TestPicturesOfEveryView(t *testing.T) {
	type open = func(t *testing.T, width, height int, color bool) *stage
	over := func(gateway func() *fake) open {
		return func(t *testing.T, width, height int, color bool) *stage {
			return play(t, gateway(), width, height, color)
		}
	}
	theFleet := func(t *testing.T, width, height int, color bool) *stage {
		s, _ := fleetOf(t, width, height, color)
		return s
	}
	// Views that show more than with the busy gateway, or only after some keys.
	better := map[string]struct {
		open open
		keys []string
	}{
		titleThroughput: {flowing, []string{"3", "+"}},
		titleFlows:      {connected, []string{"j", "j"}},
		titleLog:        {logged, nil},
		titleTimeline:   {over(busy), []string{":", "p", "e", "e", "r", " ", "c", "l", "o", "u", "d", "enter", "7", "k", "k", "k"}},
		titleFleet:      {theFleet, nil},
	}
	for i, v := range theFleet(t, 80, 24, false).views {
		shown, ok := better[v.title()]
		if !ok {
			shown.open, shown.keys = over(busy), []string{fmt.Sprint(i + 1)}
		}
		everySize(t, strings.ToLower(v.title()), func(t *testing.T, width, height int, color bool) *stage {
			s := shown.open(t, width, height, color).press(shown.keys...)
			if s.view().title() != v.title() {
				t.Fatalf("it is the view %s, want %s", s.view().title(), v.title())
			}
			return s
		})
	}
}

func TestPictures(t *testing.T) {
	for name, keys := range map[string][]string{
		"wide":     {"w"},
		"filtered": {"/", "c", "l", "o", "u", "d"},
		"command":  {":", "s", "o", "r", "t", " "},
		"help":     {"?"},
	} {
		pictures(t, name, busy, keys)
	}
}

// pictures compares the frames after these keys with the goldens.
func pictures(t *testing.T, name string, gateway func() *fake, keys []string) {
	t.Helper()
	everySize(t, name, func(t *testing.T, width, height int, color bool) *stage {
		return play(t, gateway(), width, height, color)
	}, keys...)
}

// everySize draws a frame at each size, without colour and in each theme. The text is the same in
// all. For all themes but the first, the golden contains how often each style is set, and a sum of
// the frame.
func everySize(t *testing.T, of string, open func(t *testing.T, width, height int, color bool) *stage, keys ...string) {
	t.Helper()
	t.Run(of, func(t *testing.T) {
		var themes strings.Builder
		for _, size := range sizes() {
			width, height := size[0], size[1]
			at := fmt.Sprintf("%dx%d", width, height)
			plain := open(t, width, height, false).press(keys...).View()
			fits(t, plain, width, height)
			golden(t, of+"-"+at, plain)
			s := open(t, width, height, true).press(keys...)
			for _, name := range theme.BuiltIn() {
				paint, err := s.themes.Load(name)
				if err != nil {
					t.Fatal(err)
				}
				s.data.paint = paint
				picture := s.View()
				fits(t, picture, width, height)
				if ansi.Strip(picture) != plain {
					t.Errorf("%s at %s: the theme %s changes more than colours:\n%s\nwithout:\n%s", of, at, name, ansi.Strip(picture), plain)
				}
				if name == theme.BuiltIn()[0] {
					golden(t, of+"-"+at+"-color", picture)
					continue
				}
				fmt.Fprintf(&themes, "%s %s: %s\n", at, name, stylesOf(picture))
			}
		}
		golden(t, of+"-themes", themes.String())
	})
}

// stylesOf returns how often each style is set, by its parameters, and a sum of the positions.
func stylesOf(picture string) string {
	count := map[string]int{}
	for _, sequence := range strings.Split(picture, "\x1b[")[1:] {
		if style, _, _ := strings.Cut(sequence, "m"); style != "" {
			count[style]++
		}
	}
	var out []string
	for _, style := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%s ×%d", style, count[style]))
	}
	return strings.Join(append(out, fmt.Sprintf("sum %08x", crc32.ChecksumIEEE([]byte(picture)))), ", ")
}

func TestPicturesOfTrouble(t *testing.T) {
	for name, prepare := range map[string]func(s *stage){
		"lost":   func(s *stage) { s.gateway.err = errors.New("no gateway answers on /run/postern/postern.sock\x1b[2J") },
		"empty":  func(s *stage) { s.gateway.status = api.Status{Gateway: api.GatewayStatus{Name: "edge"}} },
		"frozen": func(s *stage) { s.press("p") },
	} {
		for _, size := range sizes() {
			file := fmt.Sprintf("%s-%dx%d", name, size[0], size[1])
			t.Run(file, func(t *testing.T) {
				s := play(t, busy(), size[0], size[1], false)
				prepare(s)
				picture := s.pass(3 * time.Second).View()
				fits(t, picture, size[0], size[1])
				golden(t, file, picture)
			})
		}
	}
}
