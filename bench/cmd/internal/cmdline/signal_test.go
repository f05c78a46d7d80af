package cmdline

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// asProgram in the environment makes the test binary a program that waits for signals.
const asProgram = "CMDLINE_TEST_PROGRAM"

// The programs.
const (
	heeding  = "heeding"  // fails when its context ends
	stubborn = "stubborn" // never ends
)

func TestMain(m *testing.M) {
	kind := os.Getenv(asProgram)
	if kind == "" {
		os.Exit(m.Run())
	}
	Main("waiter", func(ctx context.Context, _ []string, s Streams) error {
		fmt.Fprintln(s.Out, "ready")
		if kind == stubborn {
			select {}
		}
		<-ctx.Done()
		return errors.New("interrupted")
	})
}

func TestASignalEndsTheContextAndTheSecondOneTheProcess(t *testing.T) {
	t.Run(heeding, func(t *testing.T) {
		said, ended := signalled(t, heeding, syscall.SIGTERM)
		var exit *exec.ExitError
		if !errors.As(ended, &exit) || exit.ExitCode() != 1 || said != "waiter: interrupted\n" {
			t.Errorf("got %v, stderr %q; want exit code 1 and the program's own error", ended, said)
		}
	})
	t.Run(stubborn, func(t *testing.T) {
		said, ended := signalled(t, stubborn, os.Interrupt)
		if want := "signal: interrupt"; ended == nil || ended.Error() != want || said != "" {
			t.Errorf("got %v, stderr %q; want %s and no output", ended, said, want)
		}
	})
}

// signalled starts one of the programs and sends it signals until it ends. A signal that arrives
// before the first one is handled counts as the first.
func signalled(t *testing.T, kind string, s os.Signal) (stderr string, ended error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"="+kind)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the program wrote %q: %v", line, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if kind == heeding {
		err := <-done
		return said.String(), err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return said.String(), err
		case <-tick.C:
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}
}
