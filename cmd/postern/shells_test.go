//go:build linux && e2e

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/postern-dev/postern/control/api"
)

// shell is one that people complete `postern` in.
type shell struct {
	name string
	args []string
	rc   string // what it is told first
	menu bool   // TAB walks through a menu, which ^C leaves
}

func shells() []shell {
	return []shell{
		{"bash", []string{"--norc", "--noprofile", "-i"}, "source /usr/share/bash-completion/bash_completion; source <(postern completion bash)", false},
		{"zsh", []string{"-f", "-i"}, "autoload -U compinit; compinit -u -d ./dump; source <(postern completion zsh)", false},
		{"fish", []string{"--no-config", "-i"}, "function fish_prompt; printf 'ready> '; end; postern completion fish | source", true},
	}
}

// canary is the file that a name makes in the working directory once a shell runs it.
const canary = "canary"

// hostile are names that anybody on the local network can announce; of each form there are
// two, so that what they have in common is typed for the operator, and one alone, which is
// typed whole.
func hostile() map[string][]string {
	return map[string][]string{
		"backquotes":  {"gw`echo>canary`-1", "gw`echo>canary`-2"},
		"dollar":      {"gw$(echo>canary)-1", "gw$(echo>canary)-2"},
		"parentheses": {"gw(echo>canary)-1", "gw(echo>canary)-2"},
		"semicolon":   {"gw;echo>canary;-1", "gw;echo>canary;-2"},
		"newline":     {"gw\necho>canary\n-1", "gw\necho>canary\n-2"},
		"quotes":      {"gw'`echo>canary`'\"`echo>canary`\"-1", "gw'`echo>canary`'\"`echo>canary`\"-2"},
		"option":      {"--force", "--socket=`echo>canary`"},
		"alone":       {"gw`echo>canary`$(echo>canary)(echo>canary)"},
		"tab":         {"gw\t`echo>canary`$(echo>canary)", "gw\t`echo>canary`$(echo>canary)2"},
	}
}

// Completion offers what strangers announce. None of it may be run, whatever it is and
// however often TAB is pressed.
func TestNoShellRunsWhatStrangersAnnounce(t *testing.T) {
	for _, s := range shells() {
		for kind, names := range hostile() {
			t.Run(s.name+" "+kind, func(t *testing.T) {
				t.Parallel()
				g := newAnnounced(t, names...)
				p := g.open(t, s)
				for _, line := range []string{"postern peer approve \t\t\t\t", "postern peer approve g\t\t\t", "postern peer approve g\t \t\t", "postern peer approve g\t --\t\t", "postern status \t\t\t"} {
					p.typed(line)
					p.leave()
				}
				if _, err := os.Stat(filepath.Join(g.dir, canary)); err == nil {
					t.Errorf("%s ran the name %q; the terminal shows:\n%q", s.name, names[0], p.seen())
				}
				if g.asked("GET /v1/discovered") == 0 {
					t.Errorf("%s completed nothing:\n%q", s.name, p.seen())
				}
			})
		}
	}
}

// What a shell is given has to be of use, too: a plain name is completed, and of another
// the fingerprint of its key.
func TestShellsCompleteWhatWasFound(t *testing.T) {
	for _, s := range shells() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for name, typed := range map[string]string{"edge-two": "ed", "cost `id`": "print"} {
				g := newAnnounced(t, name)
				p := g.open(t, s)
				p.typed("postern peer approve " + typed + "\t\r")
				p.leave()
				want := "POST /v1/peers/" + name + "/approve"
				if name != "edge-two" {
					want = "POST /v1/peers/print-0/approve"
				}
				if g.asked(want) == 0 {
					t.Errorf("%q was not completed; the terminal shows:\n%q", name, p.seen())
				}
			}
		})
	}
}

// Fish gives the words before the one that is completed without their quotes: whoever pasted
// a name in quotes must not have it run by the next TAB.
func TestFishRunsNoQuotedWord(t *testing.T) {
	fish := shells()[2]
	g := newAnnounced(t, "edge")
	p := g.open(t, fish)
	p.typed("postern peer approve 'gw (echo>canary) $(echo>canary) ;echo>canary' --\t\t")
	p.leave()
	if _, err := os.Stat(filepath.Join(g.dir, canary)); err == nil {
		t.Errorf("fish ran a quoted word; the terminal shows:\n%q", p.seen())
	}
}

// announced is a gateway that has found others, by an admin socket in a directory where the
// test binary is `postern`.
type announced struct {
	dir   string
	mu    sync.Mutex
	calls []string
}

func newAnnounced(t *testing.T, names ...string) *announced {
	t.Helper()
	dir, err := os.MkdirTemp("", "shell") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "postern"))
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &announced{dir: dir}
	var gateways []map[string]string // and no api.Discovered, which has no raw name
	for i, name := range names {
		gateways = append(gateways, map[string]string{"name": name, "state": api.DiscoveredNew, "fingerprint": fmt.Sprintf("print-%d", i)})
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]any{"GET /v1/discovered": map[string]any{"gateways": gateways}, "GET /v1/status": api.Status{}}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := r.Method + " " + r.URL.Path
		g.mu.Lock()
		g.calls = append(g.calls, call)
		g.mu.Unlock()
		_ = json.NewEncoder(w).Encode(answers[call])
	})}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
	})
	return g
}

func (g *announced) asked(call string) (times int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		if c == call {
			times++
		}
	}
	return times
}

// prompted is a shell that waits for input in a terminal.
type prompted struct {
	t        *testing.T
	shell    shell
	terminal *os.File
	marks    int

	mu     sync.Mutex
	output bytes.Buffer
	more   chan struct{} // closed, and made again, with each output
}

func (g *announced) open(t *testing.T, s shell) *prompted {
	t.Helper()
	program, err := exec.LookPath(s.name)
	if err != nil {
		t.Fatalf("%v: install the packages that `make e2e-packages` does", err)
	}
	c := exec.CommandContext(t.Context(), program, s.args...)
	c.Dir = g.dir
	c.Env = []string{"PATH=" + g.dir + ":/usr/bin:/bin", "HOME=" + g.dir, "TERM=xterm", "LANG=C.UTF-8",
		"POSTERN_SOCKET=" + filepath.Join(g.dir, "socket"), "PS1=ready> ", "XDG_CONFIG_HOME=" + g.dir, "XDG_DATA_HOME=" + g.dir}
	terminal, err := pty.StartWithSize(c, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	p := &prompted{t: t, shell: s, terminal: terminal, more: make(chan struct{})}
	var reading sync.WaitGroup
	reading.Go(p.read)
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = terminal.Close()
		reading.Wait()
	})
	p.typed(s.rc + "\r")
	p.mark()
	return p
}

func (p *prompted) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.terminal.Read(buf)
		p.mu.Lock()
		p.output.Write(buf[:n])
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *prompted) typed(keys string) {
	p.t.Helper()
	if _, err := p.terminal.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// leave drops the line that was typed, once everything typed so far has been acted upon.
func (p *prompted) leave() {
	p.t.Helper()
	if p.shell.menu {
		p.typed("\x1b") // its menu
	}
	p.typed("\x05\x15")
	p.mark()
}

// prompt is what every shell shows as soon as it reads key by key.
const prompt = "ready> "

// mark waits until the shell has come to a command that is typed here, and reads the next.
func (p *prompted) mark() {
	p.t.Helper()
	p.marks++
	p.typed(fmt.Sprintf("printf 'mark%%s.\\n' %d\r", p.marks))
	want := fmt.Sprintf("mark%d.", p.marks)
	late := time.After(time.Minute)
	for {
		p.mu.Lock()
		_, after, there := strings.Cut(p.output.String(), want)
		there = there && strings.Contains(after, prompt)
		more := p.more
		p.mu.Unlock()
		if there {
			return
		}
		select {
		case <-more:
		case <-late:
			p.t.Fatalf("%s does not come back; the terminal shows:\n%q", p.shell.name, p.seen())
		}
	}
}

func (p *prompted) seen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}
