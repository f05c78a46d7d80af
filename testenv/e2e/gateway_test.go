//go:build linux && e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// gateway is a `postern gateway` process on a host of the world, with its own folder, and the
// commands that talk to it.
type gateway struct {
	t    *testing.T
	host *netlab.Host
	name string
	dir  string
	bin  string
	doc  api.Gateway
	env  []string        // of the gateway, besides the test's
	in   *limits.Group   // nil without limits
	proc *netlab.Process // of the last start
}

// httpAddress is where every gateway serves metrics and health, on its host's loopback.
const httpAddress = "127.0.0.1:9520"

// newGateway writes a configuration, changed by configure, without starting the gateway.
func newGateway(t *testing.T, host *netlab.Host, name string, configure ...func(*api.GatewaySpec)) *gateway {
	t.Helper()
	g := &gateway{t: t, host: host, name: name, dir: tempDir(t), bin: posternBinary(t)}
	port := uint16(gatewayPort)
	g.doc = api.Gateway{APIVersion: api.Version, Kind: "Gateway", Metadata: api.Metadata{Name: name}, Spec: api.GatewaySpec{
		StateDir: filepath.Join(g.dir, "state"),
		Listen:   api.Listen{Port: &port},
		Admin:    api.Admin{Socket: g.socket()},
		HTTP:     api.HTTP{Address: httpAddress},
	}}
	for _, c := range configure {
		c(&g.doc.Spec)
	}
	g.writeConfig()
	return g
}

func (g *gateway) socket() string     { return filepath.Join(g.dir, "admin.sock") }
func (g *gateway) configFile() string { return filepath.Join(g.dir, g.name+".yaml") }

func (g *gateway) writeConfig() {
	g.t.Helper()
	b, err := yaml.Marshal(g.doc)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(g.configFile(), b, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// start runs the gateway and waits until it is ready.
func (g *gateway) start() *gateway {
	g.t.Helper()
	g.launch()
	g.waitReady()
	return g
}

// launch starts the gateway without waiting.
func (g *gateway) launch() {
	g.t.Helper()
	args := []string{g.bin, "gateway", "--config", g.configFile()}
	if g.in != nil {
		args = g.in.Inside(args...)
	}
	g.proc = g.host.Start(netlab.Command{Args: args, Env: g.env})
}

func (g *gateway) waitReady() {
	g.t.Helper()
	proc := g.proc
	eventually(within(g.t, patience), g.t, g.name+" is ready", func() (bool, string) {
		select {
		case <-proc.Done():
			g.t.Fatalf("gateway %s ended at its start:\n%s", g.name, proc.Stderr())
		default:
		}
		if _, err := g.httpGet("/readyz"); err != nil {
			return false, err.Error()
		}
		_, err := os.Stat(g.socket()) // it is created last
		return err == nil, fmt.Sprint(err)
	})
}

// stop sends a signal and waits for the gateway's end.
func (g *gateway) stop(sig syscall.Signal) {
	g.t.Helper()
	if err := g.proc.Signal(sig); err != nil {
		g.t.Fatal(err)
	}
	code, err := g.proc.Wait(within(g.t, patience))
	if err != nil {
		g.t.Fatal(err)
	}
	if sig == syscall.SIGTERM && code != 0 {
		g.t.Errorf("gateway %s ended with exit code %d after SIGTERM, want 0", g.name, code)
	}
}

// httpGet sends a request to the gateway's own HTTP server.
func (g *gateway) httpGet(path string) (string, error) {
	ctx := within(g.t, patience)
	client := &http.Client{Transport: &http.Transport{DialContext: g.host.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+httpAddress+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return string(body), nil
}

// metric returns the sum of the series of a metric whose labels contain all the given
// name="value" texts; false if there is none.
func (g *gateway) metric(name string, labels ...string) (float64, bool) {
	g.t.Helper()
	text, err := g.httpGet("/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	return sumSeries(g.t, text, name, labels...)
}

// sumSeries is metric for the text of one response.
func sumSeries(t *testing.T, text, name string, labels ...string) (sum float64, found bool) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		base, rest, _ := strings.Cut(series, "{")
		if !ok || base != name || !containsAll(rest, labels...) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", name, err)
		}
		sum, found = sum+v, true
	}
	return sum, found
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// result is the result of a command.
type result struct {
	stdout, stderr string
	code           int
}

// postern runs a command against this gateway and waits for its end.
func (g *gateway) postern(ctx context.Context, args ...string) result {
	g.t.Helper()
	return g.posternIn(ctx, "", args...)
}

// posternIn is postern with input on stdin.
func (g *gateway) posternIn(ctx context.Context, stdin string, args ...string) result {
	g.t.Helper()
	return runPostern(ctx, g.t, g.host, stdin, append([]string{g.bin, args[0], "--socket", g.socket()}, args[1:]...)...)
}

func runPostern(ctx context.Context, t *testing.T, host *netlab.Host, stdin string, args ...string) result {
	t.Helper()
	p, err := netlab.Start(netlab.Command{Namespace: host.Namespace(), Args: args, Stdin: stdin})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(p.Stderr(), "goroutine ") {
		t.Errorf("%s printed a stack trace:\n%s", strings.Join(args, " "), p.Stderr())
	}
	return result{p.Stdout(), p.Stderr(), code}
}

// must is postern for a command that must succeed; it returns stdout.
func (g *gateway) must(args ...string) string {
	g.t.Helper()
	r := g.postern(within(g.t, patience), args...)
	if r.code != 0 {
		g.t.Fatalf("at %s: postern %s: exit code %d\n--- stdout:\n%s--- stderr:\n%s", g.name, strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refused is postern for a command that must fail with the exit code and one line on stderr that
// contains all the words.
func (g *gateway) refused(code int, words []string, args ...string) {
	g.t.Helper()
	r := g.postern(within(g.t, patience), args...)
	checkRefusal(g.t, "postern "+strings.Join(args, " "), r, code, words...)
}

// checkRefusal checks the form of errors from cmd/postern/README.md: one line, "postern: what:
// cause (hint)".
func checkRefusal(t *testing.T, what string, r result, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%s: exit code %d, want %d\n--- stderr:\n%s", what, r.code, code, r.stderr)
	}
	line := strings.TrimRight(r.stderr, "\n")
	if !strings.HasPrefix(line, "postern: ") || strings.Contains(line, "\n") {
		t.Errorf("%s: stderr is not one line that begins with \"postern: \":\n%s", what, r.stderr)
	}
	if !containsAll(line, words...) {
		t.Errorf("%s: got %q, want %q in it", what, line, words)
	}
}

// status returns the output of `status -o json`.
func (g *gateway) status() api.Status {
	g.t.Helper()
	var s api.Status
	out := g.must("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		g.t.Fatalf("status of %s: %v in %q", g.name, err, out)
	}
	return s
}

// peer returns a peer's status.
func (g *gateway) peer(name string) (api.PeerStatus, bool) {
	g.t.Helper()
	for _, p := range g.status().Peers {
		if p.Name == name {
			return p, true
		}
	}
	return api.PeerStatus{}, false
}

// waitPeer waits until the peer's status satisfies ok.
func (g *gateway) waitPeer(name, what string, ok func(api.PeerStatus) bool) api.PeerStatus {
	g.t.Helper()
	var p api.PeerStatus
	eventually(within(g.t, patience), g.t, fmt.Sprintf("%s sees %s %s", g.name, name, what), func() (bool, string) {
		var found bool
		if p, found = g.peer(name); !found {
			return false, "no such peer"
		}
		return ok(p), fmt.Sprintf("%+v", p)
	})
	return p
}

func (g *gateway) waitConnected(name string) api.PeerStatus {
	g.t.Helper()
	return g.waitPeer(name, "connected", func(p api.PeerStatus) bool { return p.State == api.StateConnected })
}

// waitRekeyed waits until the gateway's key differs from had, and returns it. The gateway answers
// the command that changes its key, and then restarts.
func (g *gateway) waitRekeyed(had string) string {
	g.t.Helper()
	var s api.Status
	eventually(within(g.t, patience), g.t, g.name+" has another key", func() (bool, string) {
		r := g.postern(within(g.t, patience), "status", "-o", "json")
		err := json.Unmarshal([]byte(r.stdout), &s)
		return err == nil && s.Gateway.PublicKey != had, r.stdout + r.stderr
	})
	return s.Gateway.PublicKey
}

// waitLog waits for a line in the gateway's log that contains all the words.
func (g *gateway) waitLog(words ...string) {
	g.t.Helper()
	if _, err := g.proc.WaitStderr(within(g.t, patience), func(log string) bool { return logHas(log, words...) }); err != nil {
		g.t.Errorf("%s never logged %q: %v", g.name, words, err)
	}
}

func logHas(log string, words ...string) bool {
	for line := range strings.Lines(log) {
		if containsAll(line, words...) {
			return true
		}
	}
	return false
}

// invite creates a ticket and checks that stdout contains nothing else.
func (g *gateway) invite(args ...string) string {
	g.t.Helper()
	out := g.must(append([]string{"invite"}, args...)...)
	ticket := strings.TrimSuffix(out, "\n")
	if !strings.HasPrefix(ticket, "postern1") || strings.ContainsAny(ticket, " \n") {
		g.t.Fatalf("invite printed %q, want one ticket alone", out)
	}
	return ticket
}

// enrol invites at one gateway and joins at the other, and waits until both are connected.
func enrol(inviter, joiner *gateway, inviteArgs, joinArgs []string) {
	inviter.t.Helper()
	ticket := inviter.invite(inviteArgs...)
	joiner.must(append([]string{"join", ticket}, joinArgs...)...)
	inviter.waitConnected(joiner.name)
	joiner.waitConnected(inviter.name)
}
