//go:build e2e && linux

package limits

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// childVariable makes this program print the limits that it finds.
const childVariable = "POSTERN_LIMITS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	memory, err := memlimit.FromCgroup()
	fmt.Println(runtime.GOMAXPROCS(0), memory, err)
}

// A program in a group finds its limits as gateways do: the Go runtime its processors, of which
// it uses at least two, and memlimit the memory.
func TestAProgramInAGroupSeesItsLimits(t *testing.T) {
	g, err := New(Limits{CPUs: 0.5, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), childVariable+"=1"), &out, os.Stderr
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d %d <nil>", min(2, runtime.NumCPU()), 64<<20)
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if e := g.Events(); e.Peak == 0 || e.Kills > 0 {
		t.Errorf("events: got %+v, want a memory peak and no kills", e)
	}
	wantGone(t, g)
}

// Close kills the processes that still run.
func TestCloseKillsWhatRuns(t *testing.T) {
	g, err := New(Limits{CPUs: 1, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	wantGone(t, g)
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want it killed", err)
	}
}

// Start puts only the new process into the group, not this one.
func TestThisProcessIsNotMoved(t *testing.T) {
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Limits{CPUs: 1, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "true")
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile("/proc/self/cgroup"); err != nil || !bytes.Equal(before, after) {
		t.Errorf("got %s and %v, want %s", after, err, before)
	}
	wantGone(t, g)
}

func wantGone(t *testing.T, g *Group) {
	t.Helper()
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range g.folders {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: got %v, want it gone", dir, err)
		}
	}
}

// Sweep removes the groups whose owner was killed with their processes, and no others.
func TestSweepRemovesWhatKilledMakersLeft(t *testing.T) {
	mine, err := New(Limits{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, dir := range mine.folders {
		at := strings.Replace(dir, fmt.Sprint(os.Getpid()), fmt.Sprint(ended.Process.Pid), 1)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		left = append(left, at)
	}
	if err := Sweep(); err != nil {
		t.Error(err)
	}
	for _, dir := range left {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: got %v, want it gone", dir, err)
		}
	}
	for _, dir := range mine.folders {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a live maker's group: %v", err)
		}
	}
	wantGone(t, mine)
}
