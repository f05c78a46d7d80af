//go:build linux && e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/testenv/tmux"
)

// terminal is a real terminal: a shell runs in it, and its content can be read.
type terminal struct {
	t      *testing.T
	screen *tmux.Terminal
	// written contains every byte that programs sent to the terminal.
	written string
	// commands are those that were typed into the screen's palette.
	commands []string
}

// prompt is the shell's prompt.
const prompt = "e2e>"

// newTerminal opens a terminal in which `postern` talks to a gateway; env are additional
// variables of its shell, NAME=VALUE.
func newTerminal(t *testing.T, g *gateway, width, height int, env ...string) *terminal {
	t.Helper()
	term := &terminal{t: t, written: filepath.Join(tempDir(t), "written")}
	var err error
	if term.screen, err = tmux.Open(t.Context(), tmux.Options{
		Width: width, Height: height, Args: []string{"sh"},
		Env: append([]string{"PS1=" + prompt, "ENV=", "POSTERN_SOCKET=" + g.socket(), "PATH=" + filepath.Dir(g.bin) + ":" + os.Getenv("PATH")}, env...),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := term.screen.Close(); err != nil {
			t.Error(err)
		}
	})
	term.await("the shell waits", prompt)
	term.must(term.screen.Copy(term.ctx(), term.written))
	return term
}

// ctx limits one action.
func (term *terminal) ctx() context.Context { return within(term.t, patience) }

func (term *terminal) must(err error) {
	term.t.Helper()
	if err != nil {
		term.t.Fatal(err)
	}
}

// said returns a terminal's text, and fails the test on an error.
func (term *terminal) said(text string, err error) string {
	term.t.Helper()
	term.must(err)
	return text
}

// typed sends literal characters, press sends keys by tmux's names.
func (term *terminal) typed(text string) {
	term.t.Helper()
	if command, ok := strings.CutPrefix(text, ":"); ok {
		name, _, _ := strings.Cut(command, " ")
		term.commands = append(term.commands, name)
	}
	term.must(term.screen.Type(term.ctx(), text))
}

func (term *terminal) press(keys ...string) {
	term.t.Helper()
	term.must(term.screen.Press(term.ctx(), keys...))
}

// run types a command line.
func (term *terminal) run(line string) {
	term.t.Helper()
	term.typed(line)
	term.press("Enter")
}

func (term *terminal) resize(width, height int) {
	term.t.Helper()
	term.must(term.screen.Resize(term.ctx(), width, height))
}

// text returns the visible text, line by line without trailing spaces, and styled the same with
// the style sequences.
func (term *terminal) text() string   { return term.said(term.screen.Text(term.ctx())) }
func (term *terminal) styled() string { return term.said(term.screen.Styled(term.ctx())) }

// shows waits until the visible text satisfies ok, and returns it.
func (term *terminal) shows(what string, ok func(screen string) bool) (text string) {
	term.t.Helper()
	if err := term.screen.Await(term.ctx(), func(s string) bool { text = s; return ok(s) }); err != nil {
		term.t.Fatalf("the screen: %s: %v", what, err)
	}
	return text
}

// await waits until the screen contains all the words.
func (term *terminal) await(what string, words ...string) string {
	term.t.Helper()
	return term.shows(what, func(s string) bool { return containsAll(s, words...) })
}

// awaitGone waits until the screen contains none of the words.
func (term *terminal) awaitGone(what string, words ...string) string {
	term.t.Helper()
	return term.shows(what, func(s string) bool {
		for _, w := range words {
			if strings.Contains(s, w) {
				return false
			}
		}
		return true
	})
}

// leaves presses q and waits for the shell's prompt: earlier input would go to the program that
// ends.
func (term *terminal) leaves() string {
	term.t.Helper()
	term.press("q")
	return term.awaitShell()
}

// awaitShell waits for the shell's prompt.
func (term *terminal) awaitShell() string {
	term.t.Helper()
	return term.shows("the shell again", func(s string) bool { return strings.HasSuffix(strings.TrimRight(s, "\n "), prompt) })
}

// state returns one of tmux's variables of the terminal, such as alternate_on.
func (term *terminal) state(name string) string {
	term.t.Helper()
	return term.said(term.screen.State(term.ctx(), name))
}

// bytes returns all that programs have sent to the terminal.
func (term *terminal) bytes() string {
	term.t.Helper()
	b, err := os.ReadFile(term.written)
	if err != nil {
		term.t.Fatal(err)
	}
	return string(b)
}
