package screen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"go.uber.org/goleak"

	"github.com/postern-dev/postern/testenv/patience"
)

// console is a terminal and what was written to it.
type console struct {
	*testing.T
	ours, theirs *os.File

	mu      sync.Mutex
	written bytes.Buffer
	news    chan struct{}
	done    chan struct{}
}

func openConsole(t *testing.T) *console {
	t.Helper()
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(ours, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	c := &console{T: t, ours: ours, theirs: theirs, news: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			c.mu.Lock()
			c.written.Write(buf[:n])
			c.mu.Unlock()
			select {
			case c.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.String()
}

// await waits until a text was written to the terminal.
func (c *console) await(text string) {
	c.Helper()
	limit := time.After(patience.Left())
	for !strings.Contains(c.text(), text) {
		select {
		case <-c.news:
		case <-limit:
			c.Fatalf("%q was not written, but %q", text, c.text())
		}
	}
}

func (c *console) typed(keys string) {
	c.Helper()
	if _, err := io.WriteString(c.ours, keys); err != nil {
		c.Fatal(err)
	}
}

func (c *console) close() {
	c.theirs.Close()
	c.ours.Close()
	<-c.done
}

// start runs the screen until the returned function is called.
func (c *console) start(ctx context.Context, f *fake) (wait func() error) {
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, Options{Source: f, Color: true, In: c.theirs, Out: c.theirs}) }()
	return func() error {
		c.Helper()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience.Left()):
			c.Fatalf("still running; written: %q", c.text())
			return nil
		}
	}
}

func TestRunOnATerminal(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := openConsole(t)
	defer c.close()
	wait := c.start(t.Context(), busy())
	c.await("cloud")
	c.typed("4")
	c.await("PST0810")
	c.typed("?")
	c.await("page down")
	c.typed("q")
	if err := wait(); err != nil {
		t.Errorf("got %v after q", err)
	}
	for _, sequence := range []string{"\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h", "\x1b[?1004h", "\x1b[?1004l"} {
		c.await(sequence) // the console may not have read the last output yet
	}
	text := c.text()
	// Queries: colours (OSC 10, 11), the cursor's position, the terminal's type.
	for _, question := range []string{"\x1b]10;?", "\x1b]11;?", "\x1b[6n", "\x1b[c", "\x1b[>c", "\x1b[>0q"} {
		if strings.Contains(text, question) {
			t.Errorf("the terminal was asked %q", question)
		}
	}
}

func TestRunEndsWithItsContextAndWaitsForCalls(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := openConsole(t)
	defer c.close()
	f := busy()
	entered, left := make(chan struct{}), false
	f.check = func(ctx context.Context) {
		close(entered)
		<-ctx.Done()
		left = true // Run waits for it, so the test may read it.
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := c.start(ctx, f)
	c.await("cloud")
	c.typed("r")
	<-entered
	cancel()
	if err := wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if !left {
		t.Error("a call outlived the screen")
	}
}

func TestRunTellsOfALostGatewayAndFindsItAgain(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := openConsole(t)
	defer c.close()
	f := busy()
	wait := c.start(t.Context(), f)
	set := func(err error, name string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err, f.status.Gateway.Name = err, name
	}
	c.await("cloud")
	set(errors.New("connection refused"), "edge")
	c.await("lost the gateway")
	set(nil, "back-again")
	c.await("back-again")
	c.typed("\x03")
	if err := wait(); err != nil {
		t.Errorf("got %v after ctrl+c", err)
	}
}

func TestRunNeedsATerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	c := openConsole(t)
	defer c.close()
	for name, o := range map[string]Options{
		"pipes":         {In: r, Out: w},
		"input a pipe":  {In: r, Out: c.theirs},
		"output a pipe": {In: c.theirs, Out: w},
		"no files":      {In: &bytes.Buffer{}, Out: &bytes.Buffer{}},
		"nothing":       {},
	} {
		if err := Run(t.Context(), o); !errors.Is(err, ErrNoTerminal) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNoTerminal)
		}
	}
	if text := c.text(); text != "" {
		t.Errorf("wrote %q", text)
	}
}
