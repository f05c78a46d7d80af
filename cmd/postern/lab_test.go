package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
)

// The lab's directory has private keys: it is removed however the lab ends.
func TestLabLeavesNothingBehind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such signals")
	}
	program, err := exec.LookPath("postern")
	if err != nil {
		t.Fatal(err)
	}
	hangups := make(chan os.Signal, 1) // caught, and so not ignored by the lab either, even if nohup runs this test
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"interrupted":   func(c *exec.Cmd, _ io.Closer) error { return c.Process.Signal(os.Interrupt) },
		"terminal gone": func(c *exec.Cmd, _ io.Closer) error { return c.Process.Signal(syscall.SIGHUP) },
		"reader gone":   func(_ *exec.Cmd, out io.Closer) error { return out.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := exec.CommandContext(t.Context(), program, "lab", "--once")
			c.Env = append(os.Environ(), "TMPDIR="+dir)
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil { // the lab is built by then
				t.Fatalf("it says %q: %v", line, err)
			}
			if err := end(c, out); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			if code := c.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("it ends with %v, want exit code %d", c.ProcessState, exitInterrupted)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) > 0 {
				t.Errorf("it leaves %v (%v)", left, err)
			}
		})
	}
}
