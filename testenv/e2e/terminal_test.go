//go:build linux && e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/testenv/netlab"
)

// terminal is a real one, tmux's, of a server of its own: a shell types in it, and what it
// shows can be read. It has one window, whose size is the terminal's.
type terminal struct {
	t      *testing.T
	socket string
	// written has every byte that programs sent to the terminal.
	written string
}

// prompt is the shell's in a terminal.
const prompt = "e2e>"

// newTerminal opens a terminal in which `postern` talks to a gateway; env are more
// variables of its shell, NAME=VALUE.
func newTerminal(t *testing.T, g *gateway, width, height int, env ...string) *terminal {
	t.Helper()
	dir := tempDir(t)
	term := &terminal{t: t, socket: filepath.Join(dir, "tmux"), written: filepath.Join(dir, "written")}
	// Not as a daemon, so that it ends with the test whatever happens.
	server := g.host.Start(netlab.Command{Args: []string{"tmux", "-D", "-S", term.socket, "-f", "/dev/null"}})
	eventually(within(t, patience), t, "tmux answers", func() (bool, string) {
		select {
		case <-server.Done():
			t.Fatalf("tmux ended: %s%s", server.Stdout(), server.Stderr())
		default:
		}
		_, err := os.Stat(term.socket)
		return err == nil, fmt.Sprint(err)
	})
	// By env and not by a shell of tmux's, which would keep the prompt to itself.
	args := []string{"new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "env",
		"PS1=" + prompt, "ENV=", "POSTERN_SOCKET=" + g.socket(), "PATH=" + filepath.Dir(g.bin) + ":" + os.Getenv("PATH")}
	term.tmux(append(append(args, env...), "sh")...)
	for _, option := range []string{"status off", "window-size manual", "escape-time 0"} {
		name, value, _ := strings.Cut(option, " ")
		term.tmux("set-option", "-g", name, value)
	}
	term.resize(width, height) // the status line has left
	term.await("the shell waits", prompt)
	term.tmux("pipe-pane", "-o", "cat >>"+term.written)
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := netlab.Run(within(term.t, patience), "", "", append([]string{"tmux", "-S", term.socket}, args...)...)
	if err != nil {
		term.t.Fatal(err)
	}
	return out
}

// typed sends characters as they are, press keys by tmux's names of them.
func (term *terminal) typed(text string) {
	term.t.Helper()
	term.tmux("send-keys", "-l", "--", text)
}

func (term *terminal) press(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys", "--"}, keys...)...)
}

// run types a command line.
func (term *terminal) run(line string) {
	term.t.Helper()
	term.typed(line)
	term.press("Enter")
}

func (term *terminal) resize(width, height int) {
	term.t.Helper()
	term.tmux("resize-window", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height))
}

// screen is what can be read now, line by line without spaces at their ends.
func (term *terminal) screen() string {
	term.t.Helper()
	return term.tmux("capture-pane", "-p")
}

// shows waits until what can be read is as ok wants, and returns it.
func (term *terminal) shows(what string, ok func(screen string) bool) string {
	term.t.Helper()
	var last string
	eventually(within(term.t, patience), term.t, "the screen: "+what, func() (bool, string) {
		last = term.screen()
		return ok(last), "\n" + last
	})
	return last
}

// await waits until the screen has all the words.
func (term *terminal) await(what string, words ...string) string {
	term.t.Helper()
	return term.shows(what, func(s string) bool { return containsAll(s, words...) })
}

// awaitGone waits until the screen has none of the words.
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

// leaves presses q and waits for the shell's prompt: what is typed before it goes to the program that ends.
func (term *terminal) leaves() string {
	term.t.Helper()
	term.press("q")
	return term.shows("the shell again", func(s string) bool { return strings.HasSuffix(strings.TrimRight(s, "\n "), prompt) })
}

// state is one of tmux's variables of the terminal, such as alternate_on.
func (term *terminal) state(name string) string {
	term.t.Helper()
	return strings.TrimSpace(term.tmux("display-message", "-p", "#{"+name+"}"))
}

// bytes is all that programs have sent to the terminal.
func (term *terminal) bytes() string {
	term.t.Helper()
	b, err := os.ReadFile(term.written)
	if err != nil {
		term.t.Fatal(err)
	}
	return string(b)
}
