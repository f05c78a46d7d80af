package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/peers/load"
)

// keepArg, followed by wireguard-go's program, makes the test binary a process that runs two of
// them, prints a line when they run, and waits to be killed.
const keepArg = "-keep-processes"

func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != keepArg {
		os.Exit(m.Run())
	}
	if _, err := newProcesses(context.Background(), load.Spec{Program: os.Args[2]}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("running")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Only the two processes of spec.Program are counted, not this one.
func TestTheProcessesAloneAreCounted(t *testing.T) {
	subject, ok := subjects(t)["wireguard-go"]
	if !ok {
		return // it cannot run here, as subjects has logged
	}
	var program string
	var pids []int
	r := bear(t, func(ctx context.Context, spec load.Spec) (load.Ends, error) {
		ends, err := subject(ctx, spec)
		pids = ends.Processes
		for _, pid := range pids {
			if program, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || filepath.Base(program) != "wireguard" {
				t.Errorf("process %d runs %q (%v), want wireguard-go's program", pid, program, err)
			}
		}
		return ends, err
	}, load.Spec{Streams: 1})
	if len(pids) != 2 || pids[0] == pids[1] || slices.Contains(pids, os.Getpid()) {
		t.Errorf("processes %v, want two that are not this one, %d", pids, os.Getpid())
	}
	if r.PeakRSS == 0 {
		t.Error("got no memory, want that of the processes")
	}
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d is still there after the run", pid)
		}
	}
}

// The processes inherit this one's standard error, so its end shows that all of them ended.
func TestProcessesEndWithTheOneThatIsKilled(t *testing.T) {
	if _, ok := subjects(t)["wireguard-go"]; !ok {
		return
	}
	interfacesBefore, socketsBefore := interfaces(t), sockets(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.CommandContext(t.Context(), self, keepArg, wireguardGo(t))
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cmd.Start(), stderr.Close(), said.SetReadDeadline(time.Now().Add(longest))); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		err = cmd.Process.Kill()
	}
	text, left := io.ReadAll(said) // ends when no process holds it any more
	if err != nil || line != "running\n" {
		t.Fatalf("got %q and %v, want the line that it runs: %s", line, err, text)
	}
	if left != nil {
		t.Errorf("standard error after the kill: %v, want its end", left)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want that it was killed", err)
	}
	if after := interfaces(t); !slices.Equal(interfacesBefore, after) {
		t.Errorf("interfaces: %q, want %q as before", after, interfacesBefore)
	}
	if after := sockets(t); !slices.Equal(socketsBefore, after) {
		t.Errorf("wireguard-go's sockets: %q, want %q as before", after, socketsBefore)
	}
}

// sockets returns those of this machine's wireguard-go.
func sockets(t *testing.T) (names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(runDir, "wireguard"))
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return slices.Collect(func(yield func(string) bool) {
		for _, one := range all {
			if one.Type()&fs.ModeSocket != 0 && !yield(one.Name()) {
				return
			}
		}
	})
}

// If a program does not start, an error says so, and nothing is left of it.
func TestAProcessThatEndsIsToldOf(t *testing.T) {
	if _, ok := subjects(t)["wireguard-go"]; !ok {
		return
	}
	for _, c := range []struct {
		spec load.Spec
		want string
	}{
		{load.Spec{Program: "/bin/false"}, "wireguard-go for wg-dialling (needs root and /dev/net/tun) ended: exit status 1"},
		{load.Spec{Program: "/nowhere/wireguard"}, "start /nowhere/wireguard: "},
		{load.Spec{}, "which wireguard-go?"},
		{load.Spec{Program: "/bin/false", Via: "127.0.0.1:9"}, "not by way of a forwarder"},
	} {
		_, err := newProcesses(t.Context(), c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.spec, err, c.want)
		}
	}
}
