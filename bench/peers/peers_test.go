package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/peers/load"
)

// In a window of shortest, something normally arrives. On a busy machine it may not, so windows
// grow up to longest.
const (
	shortest = 100 * time.Millisecond
	longest  = time.Minute
)

// subjects returns those that this machine can run.
func subjects(t *testing.T) map[string]load.Subject {
	t.Helper()
	s, program := map[string]load.Subject{"stock": newStock}, wireguardGo(t)
	for name, subject := range map[string]load.Subject{
		"wireguard-tun": newTUN,
		"wireguard-go": func(ctx context.Context, spec load.Spec) (load.Ends, error) {
			spec.Program = program
			return newProcesses(ctx, spec)
		},
	} {
		ends, err := subject(t.Context(), load.Spec{})
		if err != nil {
			if os.Geteuid() == 0 || !strings.Contains(err.Error(), "needs ") {
				t.Fatalf("%s: %v", name, err)
			}
			t.Logf("without %s: %v", name, err)
			continue
		}
		if err := errors.Join(ends.Listener.Close(), ends.Close()); err != nil {
			t.Fatal(err)
		}
		s[name] = subject
	}
	return s
}

// wireguardGo builds wireguard-go's own program, at the version in go.mod.
func wireguardGo(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "wireguard")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "golang.zx2c4.com/wireguard")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build wireguard-go: %v: %s", err, out)
	}
	return program
}

func TestSubjectsBearLoads(t *testing.T) {
	for name, subject := range subjects(t) {
		for _, spec := range []load.Spec{
			{Load: load.LoadStreams, Streams: 2},
			{Load: load.LoadStreams, Streams: 1, MTU: 8920},
			{Load: load.LoadDatagrams, Size: 1000, Rate: 1000},
			{Load: load.LoadConnections},
			{Load: load.LoadRequests, Size: 1000},
		} {
			t.Run(name+" "+spec.Load, func(t *testing.T) { bear(t, subject, spec) })
		}
	}
}

func TestEverythingPassesTheForwarder(t *testing.T) {
	for name, subject := range subjects(t) {
		if name == "wireguard-go" {
			continue // its processes are in namespaces without a forwarder
		}
		t.Run(name, func(t *testing.T) {
			f := newForwarder(t)
			r := bear(t, subject, load.Spec{Streams: 1, Via: f.at()})
			if n := uint64(f.bytes.Load()); n < r.Bytes {
				t.Errorf("%d bytes passed the forwarder, want the %d that arrived and more", n, r.Bytes)
			}
			if _, err := subject(t.Context(), load.Spec{Via: "nowhere"}); err == nil {
				t.Error("a forwarder without an address: got no error")
			}
		})
	}
}

// bear runs a load over a subject. Something must arrive.
func bear(t *testing.T, subject load.Subject, spec load.Spec) load.Result {
	t.Helper()
	for window := shortest; window < longest; window *= 10 {
		spec.Duration = window
		ends, err := subject(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		r, err := load.Run(t.Context(), spec, ends)
		if err != nil {
			t.Fatal(err)
		}
		if r.Bytes > 0 {
			return r
		}
		t.Logf("nothing arrived in %s", window)
	}
	t.Fatal("nothing arrived")
	return load.Result{}
}
