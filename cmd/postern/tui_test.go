package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/operator"
)

// programAndDir returns the program, and a directory for its socket, whose path holds 107 bytes.
func programAndDir(t *testing.T) (program, dir string) {
	t.Helper()
	program, err := exec.LookPath("postern")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = os.MkdirTemp("", "p"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return program, dir
}

// A peer that waits is let in from the screen, by the key whose fingerprint was shown; a
// screen that only shows asks nothing of the gateway.
func TestActingFromTheScreen(t *testing.T) {
	program, dir := programAndDir(t)
	status, err := json.Marshal(api.Status{Gateway: api.GatewayStatus{Name: "edge"}, Peers: []api.PeerStatus{{
		Name: "cloud", PublicKey: bobPublic, State: api.StatePending, ApprovalFingerprint: "fcb4-8bb5-2120-8f10", Allow: []string{"auth"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "status.json"), status, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	server, err := admin.Listen(admin.ServerOptions{Socket: socket, Backend: &scripted{dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	sit := func(arguments ...string) *operator.Operator {
		c := exec.CommandContext(t.Context(), program, append([]string{"tui"}, arguments...)...)
		c.Env = []string{"POSTERN_SOCKET=" + socket, "TERM=xterm", "NO_COLOR=1", "GORACE=atexit_sleep_ms=0"}
		return operator.Sit(t, "the operator", c)
	}
	o := sit("--read-only")
	o.Types("cloud", ":approve cloud")
	o.Sees(`read-only`)
	o = sit()
	o.Types("cloud", ":approve cloud")
	o.Sees(`postern peer approve cloud --fingerprint fcb4-8bb5-2120-8f10`)
	o.Types("y do it", "y")
	o.Sees("approved cloud")
	o = sit("--gateways", socket+","+filepath.Join(dir, "gone.sock"))
	o.Types("✗ 1 lost", "j") // and enter
	o.Sees("edge · 1 peer")
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(strings.Split(string(calls), "\n"), func(call string) bool { return !strings.HasPrefix(call, "approve ") })
	if want := `approve {"name":"cloud","body":{"fingerprint":"fcb4-8bb5-2120-8f10"}}`; len(got) != 1 || got[0] != want {
		t.Errorf("asked %q, want %q once", got, want)
	}
}

// What changes is said in lines on a pipe, also that the gateway went and came back, and ctrl+c ends it well.
func TestPlainScreenOnAPipe(t *testing.T) {
	program, err := exec.LookPath("postern")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "p") // a socket's path holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	tell := func(state api.PeerState) {
		status, err := json.Marshal(api.Status{Gateway: api.GatewayStatus{Name: "edge"}, Peers: []api.PeerStatus{{Name: "cloud", PublicKey: bobPublic, State: state}}})
		if err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, status, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "status.json")); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "s")
	serve := func() *admin.Server {
		server, err := admin.Listen(admin.ServerOptions{Socket: socket, Backend: &scripted{dir: dir}})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	tell(api.StateConnected)
	server := serve()
	c := exec.CommandContext(t.Context(), program, "tui", "--plain")
	c.Env = []string{"POSTERN_SOCKET=" + socket, "TERM=xterm"}
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("it says %q, want %q", lines.Text(), want)
		}
	}
	says(" gateway edge has 1 peer: 1 connected.")
	tell(api.StateFailed)
	says(" cloud: failed now, and was connected.")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	says(" gateway edge does not answer: ")
	tell(api.StateConnected)
	server = serve()
	t.Cleanup(func() { _ = server.Close() })
	says(" gateway edge answers again, after ")
	says(" cloud: connected now, and was failed.")
	unheard := exec.CommandContext(t.Context(), "sh", "-c", `"$0" tui --plain | head -n 1`, program)
	unheard.Env = c.Env
	if out, err := unheard.Output(); err != nil || !strings.Contains(string(out), "1 connected") {
		t.Errorf("once nobody reads it ends with %v; it said %q", err, out)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("it says %q at the end", lines.Text())
	}
	if err := c.Wait(); err != nil {
		t.Errorf("interrupted it ends with %v", err)
	}
}
