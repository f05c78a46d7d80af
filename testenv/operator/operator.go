// Package operator simulates a person at a terminal, who types and reads the screen.
package operator

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// patience bounds all waits. It only matters if something is broken.
const patience = 90 * time.Second

// erased is a line that was removed from the screen, such as what a command waits for.
var erased = regexp.MustCompile(`[^\n]*\r\x1b\[K`)

// Operator is a person at a terminal. Typing clears the recorded screen.
type Operator struct {
	t        testing.TB
	name     string
	terminal *os.File
	words    int

	mu      sync.Mutex
	screen  bytes.Buffer
	changed chan struct{} // closed and replaced when the screen shows more
}

// Sit runs a command in a terminal until the test ends.
func Sit(t testing.TB, name string, c *exec.Cmd) *Operator {
	t.Helper()
	terminal, err := pty.StartWithSize(c, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	o := &Operator{t: t, name: name, terminal: terminal, changed: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := terminal.Read(b)
			o.shows(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		terminal.Close()
		<-done
	})
	return o
}

func (o *Operator) shows(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.screen.Write(b)
	close(o.changed)
	o.changed = make(chan struct{})
}

// Types enters a line once the screen shows a pattern.
func (o *Operator) Types(after, line string) {
	o.t.Helper()
	o.Sees(after)
	o.mu.Lock()
	o.screen.Reset()
	o.mu.Unlock()
	o.words += len(strings.Fields(line))
	if _, err := io.WriteString(o.terminal, line+"\r"); err != nil {
		o.t.Fatal(err)
	}
}

// Words returns the number of typed words.
func (o *Operator) Words() int { return o.words }

// Sees waits until the screen shows a pattern, and returns its last group.
func (o *Operator) Sees(pattern string) string {
	o.t.Helper()
	like := regexp.MustCompile(pattern)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		o.mu.Lock()
		text, changed := strings.ReplaceAll(erased.ReplaceAllString(o.screen.String(), ""), "\r", ""), o.changed
		o.mu.Unlock()
		if found := like.FindStringSubmatch(text); found != nil {
			return found[len(found)-1]
		}
		select {
		case <-changed:
		case <-timeout.C:
			o.t.Fatalf("%s does not see %q:\n%s", o.name, pattern, text)
		}
	}
}
