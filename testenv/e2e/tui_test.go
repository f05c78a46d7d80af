//go:build linux && e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// cells are the titles of a peer's six verdicts in the overview.
var cells = []string{"→AUTH", "→API", "→GW", "←AUTH", "←API", "←GW"}

// TestScreenInATerminal uses the live screen as an operator does, on a pair with everything to
// show, and with faults.
func TestScreenInATerminal(t *testing.T) {
	t.Parallel()
	f := newFaultLab(t, setting{left: dial, right: portRestricted})
	f.run(true)
	g := f.right.gateway
	term := newTerminal(t, g, 80, 24)
	term.run("echo before; postern tui")
	term.await("the overview", append([]string{"[1 Overview]", "left", "● connected", "direct"}, cells...)...)
	if on := term.state("alternate_on"); on != "1" {
		t.Errorf("the screen is not the alternate one: %q", on)
	}
	filterPeers(t, term)
	drill(t, term)
	f.faultAndRerun(t, term)
	f.freeze(t, term)
	resizeLive(t, term)
	suspend(term)
	f.losesTheGateway(t, term)

	after := term.leaves()
	if !strings.Contains(after, "\nbefore\n") || strings.Contains(after, "Overview") {
		t.Errorf("q does not leave the terminal as it was:\n%s", after)
	}
	for name, want := range map[string]string{"alternate_on": "0", "cursor_flag": "1", "mouse_any_flag": "0", "bracket_paste_flag": "0"} {
		if got := term.state(name); got != want && got != "" { // an older tmux lacks some
			t.Errorf("after q %s is %s, want %s", name, got, want)
		}
	}
	asksNothing(t, term.bytes())
}

// filterPeers selects peers by name, and all others.
func filterPeers(t *testing.T, term *terminal) {
	t.Helper()
	term.typed("/nobody")
	term.await("no row", "/nobody", "the filter picks no peer")
	term.press("Escape")
	term.await("the row is back", "● connected")
	term.typed("/!left")
	term.press("Enter")
	term.await("the row that has the name is away", "the filter picks no peer", "esc clears")
	term.press("Escape")
	term.awaitGone("no filter", "esc clears") // escape followed by a letter would be another key
	term.typed("/LEF")
	term.press("Enter")
	term.await("the row that has it", "▸ left", "/LEF", "esc clears")
	term.press("Escape")
	term.awaitGone("no filter", "esc clears")
}

// drill opens the peer and returns.
func drill(t *testing.T, term *terminal) {
	t.Helper()
	term.press("Enter")
	term.await("the peer", "[2 Peer]", "left", "handshake", leftPublic)
	term.shows("its end", func(screen string) bool {
		if strings.Contains(screen, "public key") {
			return true
		}
		term.press("G") // again: the content may have grown
		return false
	})
	term.press("Escape")
	term.await("back", "[1 Overview]", "● connected")
	term.press("?")
	term.await("the keys", "moving", "page down")
	term.press("?")
	term.awaitGone("the keys are away", "page down")
}

// faultAndRerun stops the API server behind this gateway: the checks name the fault, its cause
// and its fix, and r finds that it is over.
func (f *faultLab) faultAndRerun(t *testing.T, term *terminal) {
	t.Helper()
	term.press("4")
	term.await("the checks", "[4 Checks]", "gateway")
	f.right.api.stop()
	rerun(term, func(screen string) bool { return strings.Contains(screen, "PST0310") })
	term.shows("the fault with its code, cause and fix", func(screen string) bool {
		if containsAll(screen, "▸ ✗", "PST0310", apiUpstream, "refused", "fix") {
			return true
		}
		term.press("g") // the worst is the first; what was selected before stays in sight
		return false
	})
	term.press("c")
	term.await("the fix is copied", "copied")
	f.right.api.start()
	rerun(term, func(screen string) bool { return !strings.Contains(screen, "PST0310") })
	term.awaitGone("the fault is over", "PST0310")
	term.press("1")
	term.await("the overview", "[1 Overview]", "● connected")
}

// rerun presses r until a run has the wanted result: one that begins while a server is still
// stopping finds nothing, and a press during a run does nothing.
func rerun(term *terminal, found func(screen string) bool) {
	const again = 5 * time.Second
	var pressed time.Time
	term.shows("a run finds what happened", func(screen string) bool {
		if found(screen) {
			return true
		}
		if time.Since(pressed) > again {
			pressed = time.Now()
			term.press("r")
		}
		return false
	})
}

// freeze changes something while the screen is frozen.
func (f *faultLab) freeze(t *testing.T, term *terminal) {
	t.Helper()
	const newcomer = "newcomer"
	term.press("p")
	term.await("frozen", "= frozen")
	f.right.must("peer", "add", newcomer, "--public-key", newKey(t).Public().String())
	f.right.waitPeer(newcomer, "at all", func(api.PeerStatus) bool { return true })
	select {
	case <-time.After(3 * time.Second): // some snapshots of a screen that is not frozen
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	if s := term.text(); strings.Contains(s, newcomer) {
		t.Errorf("a frozen screen shows what came after:\n%s", s)
	}
	term.press("p")
	term.shows("it goes on", func(s string) bool { return strings.Contains(s, newcomer) && !strings.Contains(s, "frozen") })
	f.right.must("peer", "remove", newcomer)
	term.awaitGone("and on", newcomer)
}

// resizeLive changes the terminal's size in every view.
func resizeLive(t *testing.T, term *terminal) {
	t.Helper()
	for _, size := range [][2]int{{40, 15}, {120, 40}, {200, 60}, {80, 24}} {
		width, height := size[0], size[1]
		term.resize(width, height)
		for view, title := range []string{"Overview", "Peer", "Throughput", "Checks", "Flows", "Log", "Timeline"} {
			term.press(fmt.Sprint(view + 1))
			tab := fmt.Sprintf("[%d %s]", view+1, title)
			term.shows(fmt.Sprintf("%s on %d × %d", title, width, height), func(s string) bool {
				lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
				return len(lines) == height && framed(lines, tab) && !slices.ContainsFunc(lines, func(l string) bool { return len([]rune(l)) > width })
			})
		}
	}
	term.press("1")
}

// framed reports whether the header, one tab bar and the footer are in their places, and nowhere
// else.
func framed(lines []string, tab string) bool {
	bars := 0
	for _, l := range lines {
		if strings.Contains(l, tab) {
			bars++
		}
	}
	last := len(lines) - 1
	return strings.HasPrefix(lines[0], "right · 1 peer") && bars == 1 && strings.HasPrefix(lines[last], "? ") &&
		!slices.ContainsFunc(lines[:last], func(l string) bool { return strings.HasPrefix(l, "? help") })
}

// suspend returns to the shell for a while.
func suspend(term *terminal) {
	term.press("C-z")
	term.await("the shell is back", "Stopped", prompt)
	term.run("fg")
	term.await("the screen is back", "[1 Overview]", "● connected")
}

// losesTheGateway kills the gateway and starts it again; the screen says that its history starts
// again.
func (f *faultLab) losesTheGateway(t *testing.T, term *terminal) {
	t.Helper()
	f.right.stop(syscall.SIGKILL)
	term.await("the gateway is lost", "✗ lost the gateway", "asking again", "left")
	f.right.launch()
	term.shows("the gateway is back", func(s string) bool {
		return containsAll(s, "[1 Overview]", "● connected") && !strings.Contains(s, "lost the gateway")
	})
	f.right.waitReady()
	term.press("7")
	term.await("the past starts over", "[7 Timeline]", "gateway started at", "events")
	term.press("1")
}

// questions matches queries to a terminal: its colours (OSC 4, 10, 11, 12), the cursor's
// position, its kind and version, a mode, a setting, its size in pixels.
var questions = regexp.MustCompile("\x1b\\](4|1[0-9]);[^\x07\x1b]*\\?|\x1b\\[\\??6n|\x1b\\[[>=]?0?c|\x1b\\[>0?q|\x1b\\[\\??[0-9]+\\$p|\x1bP\\$q|\x1b\\[1[3-9]t|\x1b\\[\\?u")

// asksNothing checks that the terminal was sent no queries: a terminal that does not answer would
// block the program, and answers would be typed into it.
func asksNothing(t *testing.T, written string) {
	t.Helper()
	if !strings.Contains(written, "\x1b[?1049h") {
		t.Errorf("what was written was not recorded: %q", written)
	}
	if q := questions.FindString(written); q != "" {
		t.Errorf("the terminal was asked %q", q)
	}
}

// sgr matches a sequence that sets how characters look.
var sgr = regexp.MustCompile("\x1b\\[([0-9;:]*)m")

// colours returns the parameters in a terminal's input that set a colour.
func colours(written string) (found []string) {
	for _, m := range sgr.FindAllStringSubmatch(written, -1) {
		for _, p := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ';' || r == ':' }) {
			if len(p) > 1 && strings.Contains("3 4 9 10", p[:len(p)-1]) {
				found = append(found, p)
			}
		}
	}
	return found
}

// TestColours: the terminal's own sixteen colours, none with NO_COLOR, and with 16 million also
// shades in charts.
func TestColours(t *testing.T) {
	t.Parallel()
	p := newPeers(t, newWorld(t))
	for _, c := range []struct {
		name           string
		env            []string
		colour, shades bool
	}{
		{"a terminal", []string{"COLORTERM="}, true, false},
		{"one of 256 colours", []string{"COLORTERM=", "TERM=xterm-256color"}, true, false},
		{"one of 16 million", []string{"COLORTERM=truecolor"}, true, true},
		{"its theme without hues", []string{"COLORTERM=truecolor", "POSTERN_THEME=contrast"}, false, false},
		{"NO_COLOR", []string{"NO_COLOR=1", "COLORTERM=truecolor"}, false, false},
		{"a dumb terminal", []string{"TERM=dumb", "COLORTERM=truecolor"}, false, false},
	} {
		term := newTerminal(t, p.edge, 80, 24, c.env...)
		term.run("postern tui")
		term.await(c.name+": the overview", "cloud", "● connected")
		term.press("4")
		term.await(c.name+": the checks", "[4 Checks]", "gateway")
		term.press("3")
		term.await(c.name+": a chart", "[3 Throughput]", "SINCE START")
		term.shows(c.name+": what was written is recorded", func(string) bool {
			written := term.bytes()
			return (len(colours(written)) > 0) == c.colour && strings.Contains(written, "\x1b[38;2;") == c.shades
		})
		term.leaves()
		written := term.bytes()
		found := colours(written)
		if (len(found) > 0) != c.colour {
			t.Errorf("%s: colours %q were set, want some: %v", c.name, found, c.colour)
		}
		if shades := strings.Contains(written, "\x1b[38;2;"); shades != c.shades || slices.Contains(found, "48") || slices.Contains(found, "38") && !shades {
			t.Errorf("%s: there are shades: %v, want %v, and no other colours beyond the terminal's sixteen: %q", c.name, shades, c.shades, found)
		}
		asksNothing(t, written)
	}
}

// TestScreenWithoutATerminal: piped output is a table, and if no key can be read the command says
// so.
func TestScreenWithoutATerminal(t *testing.T) {
	t.Parallel()
	p := newPeers(t, newWorld(t))
	table := func(what, out string) {
		t.Helper()
		if !containsAll(out, "gateway edge", "PEER", "cloud", "● connected") || strings.Contains(out, "\x1b") {
			t.Errorf("%s is not a table:\n%q", what, out)
		}
	}
	table("tui to a pipe", p.edge.must("tui"))
	table("tui --once", p.edge.must("tui", "--once"))
	table("status --watch to a pipe", p.edge.must("status", "--watch"))

	term := newTerminal(t, p.edge, 80, 24)
	term.run("postern tui | cat; echo ended=$?")
	table("tui | cat", term.await("the table ends", "ended=0", "PEER"))
	term.run("clear; postern tui </dev/null; echo ended=$?")
	refused := term.await("a refusal", "ended=2")
	// The terminal breaks the line.
	if !containsAll(strings.ReplaceAll(refused, "\n", ""), "postern: tui", "stdin is not a terminal", "postern tui --once") {
		t.Errorf("tui without keys says:\n%s", refused)
	}
	asked := term.bytes()
	if strings.Contains(asked, "\x1b[?1049h") || questions.MatchString(asked) {
		t.Errorf("something was done to a terminal that is not used: %q", asked)
	}

	// No gateway: at once, as any other command.
	p.edge.stop(syscall.SIGTERM)
	term.run("clear; postern tui; echo ended=$?")
	if s := term.await("the end", "ended=3"); !containsAll(s, "postern: ") {
		t.Errorf("tui without a gateway says:\n%s", s)
	}
}

// TestWatchedStatus: `status --watch` on a terminal goes on, and leaves it as it was.
func TestWatchedStatus(t *testing.T) {
	t.Parallel()
	p := newPeers(t, newWorld(t))
	term := newTerminal(t, p.edge, 80, 24)
	term.run("echo before; postern status --watch")
	term.await("the table", "gateway edge", "cloud", "q quit")
	p.edge.must("peer", "add", "newcomer", "--public-key", newKey(t).Public().String())
	term.await("it goes on", "newcomer")
	term.resize(40, 15)
	term.shows("a smaller one", func(s string) bool {
		lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
		return len(lines) == 15 && strings.HasPrefix(lines[0], "gateway edge") && strings.HasPrefix(lines[14], "q quit")
	})
	if after := term.leaves(); !strings.Contains(after, "before") || strings.Contains(after, "PEER") {
		t.Errorf("q does not leave the terminal as it was:\n%s", after)
	}
	if on, cursor := term.state("alternate_on"), term.state("cursor_flag"); on != "0" || cursor != "1" {
		t.Errorf("after q alternate_on is %s and cursor_flag %s, want 0 and 1", on, cursor)
	}
	asksNothing(t, term.bytes())
	term.run("clear; postern status --watch -o json | head -n 2 | wc -l")
	term.await("two documents, a line each", "2\n")
}
