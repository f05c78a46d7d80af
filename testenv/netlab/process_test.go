//go:build linux

package netlab

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/testenv/patience"
)

// deadline only bounds failure.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	t.Cleanup(cancel)
	return ctx
}

func TestRunReturnsWhatWasPrinted(t *testing.T) {
	out, err := Run(deadline(t), "", "two\nlines\n", "cat")
	if err != nil || out != "two\nlines\n" {
		t.Errorf("cat: got %q, %v", out, err)
	}
}

func TestFailureShowsCommandCodeAndOutput(t *testing.T) {
	_, err := Run(deadline(t), "", "", "sh", "-c", "echo said; echo complained >&2; exit 7")
	if err == nil {
		t.Fatal("exit code 7 is no error")
	}
	for _, want := range []string{"sh -c", "exit code 7", "said", "complained"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	if _, err := Run(deadline(t), "", "", "no-such-program"); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("got %v, want an error with the program's name", err)
	}
}

func TestOutputCanBeWaitedFor(t *testing.T) {
	p, err := Start(Command{Args: []string{"sh", "-c", "echo ready; read line; echo got $line; exec sleep 600"}, Stdin: "it\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if _, err := p.WaitStdout(deadline(t), func(s string) bool { return strings.Contains(s, "got it") }); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(deadline(t)); code != -1 || err != nil {
		t.Errorf("after SIGTERM: exit code %d, %v; want -1", code, err)
	}
	if _, err := p.WaitStdout(deadline(t), func(s string) bool { return strings.Contains(s, "never") }); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("waiting for output of a dead program: got %v, want an error about that", err)
	}
}

func TestKillReachesChildren(t *testing.T) {
	p, err := Start(Command{Args: []string{"sh", "-c", "sleep 600 & echo $!; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	out, err := p.WaitStdout(deadline(t), func(s string) bool { return strings.HasSuffix(s, "\n") })
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	// Its parent has ended, too, so this process cannot wait for it.
	ctx := deadline(t)
	for {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(out) + "/stat")
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
			return
		}
		if _, rest, _ := cutLast(string(stat), ") "); strings.HasPrefix(rest, "Z") {
			return // dead: a zombie until the system reaps it
		}
		if ctx.Err() != nil {
			t.Fatalf("the child is still there: %s", stat)
		}
	}
}

func TestWaitGivesUpWithItsContext(t *testing.T) {
	p, err := Start(Command{Args: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(ctx); err == nil || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("got %v, want an error with the program's name", err)
	}
}
