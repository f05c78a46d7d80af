package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

var update = flag.Bool("update", false, "write what the scripts compare with")

func TestMain(m *testing.M) {
	command := func() { os.Exit(run()) }
	testscript.Main(m, map[string]func(){"postern": command, "kubectl-postern": command, "kubectl_complete-postern": command})
}

// The scripts run the program as users do. Beside testscript's own commands there are
//
//	code N command…    run it, and want exit code N
//	fake               start a gateway that answers what the script's files say
//	api FILE           start an API server that refuses everybody and says whom, and write a
//	                   kubeconfig for it: contexts one (of no server) and two (cluster live)
//	lines stdout N     want so many lines on stdout or stderr
//
// and the variables TICKET and REPLY, a ticket of "cloud" and a reply to it, BOBKEY, a
// public key, PRIVATE and PUBLIC, a key pair of RFC 7748 §6.1, and SOCKET, which is
// POSTERN_SOCKET unless the script changes that. kubectl-postern is the same program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"api": apiServer, "code": code, "fake": fake, "lines": lines,
		},
	})
}

const (
	alicePrivate = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicePublic  = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	bobPublic    = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
)

func setup(e *testscript.Env) error {
	alice, err := peer.ParsePublicKey(alicePublic)
	if err != nil {
		return err
	}
	bob, err := peer.ParsePublicKey(bobPublic)
	if err != nil {
		return err
	}
	t := ticket.Ticket{
		Seed: ticket.SeedFromBytes([32]byte{1}), Inviter: alice, Name: "cloud",
		Expires: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Allow: []string{"auth", "apiServer"},
	}
	text, err := t.Encode()
	if err != nil {
		return err
	}
	keys, err := t.Keys()
	if err != nil {
		return err
	}
	reply, err := ticket.EncodeReply(keys, ticket.Request{PublicKey: bob, Name: "edge"})
	if err != nil {
		return err
	}
	// A socket's path holds 107 bytes, and the script's own directory may be longer.
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		return err
	}
	e.Defer(func() { _ = os.RemoveAll(dir) })
	e.Setenv("POSTERN_SOCKET", filepath.Join(dir, "s"))
	e.Setenv("SOCKET", filepath.Join(dir, "s"))
	e.Setenv("TICKET", text)
	e.Setenv("REPLY", reply)
	e.Setenv("PRIVATE", alicePrivate)
	e.Setenv("PUBLIC", alicePublic)
	e.Setenv("BOBKEY", bobPublic)
	e.Setenv("TERM", "xterm")
	e.Setenv("GORACE", "atexit_sleep_ms=0") // Else every process of a race build ends with a second's sleep.
	return nil
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func fake(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: fake")
	}
	s, err := admin.Listen(admin.ServerOptions{Socket: ts.Getenv("POSTERN_SOCKET"), Backend: &scripted{dir: ts.MkAbs(".")}})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Close()) })
}

func apiServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: api FILE")
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`,
			fmt.Sprintf("forbidden: %s by %s as user %q of groups %s", r.Method, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), r.Header["Impersonate-Group"]))
	}))
	ts.Defer(s.Close)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}, {name: live, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret}}, {name: v, user: {token: other}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: live, user: u, namespace: edge}}]
`, s.URL), 0o600))
}

func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines stdout|stderr N")
	}
	if got := fmt.Sprint(strings.Count(ts.ReadFile(args[0]), "\n")); got != args[1] {
		ts.Fatalf("%s lines on %s, want %s", got, args[0], args[1])
	}
}
