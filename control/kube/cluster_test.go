//go:build linux && e2e

package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/tunnel/peer"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

var (
	edge   = auth.Subject{Name: "edge", PublicKey: peer.PublicKey{1}}
	berlin = auth.Subject{Name: "berlin", PublicKey: peer.PublicKey{2}}
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// world is a real API server.
type world struct {
	cluster kubetest.Cluster
	http    *http.Client // without any identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := kubetest.Start(t)
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	roots, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cluster: c, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots.RootCAs, ServerName: kube.ServerName, MinVersion: tls.VersionTLS12},
	}}}
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

// kubectl runs kubectl as the administrator.
func (w *world) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return w.cluster.Run(t, stdin, args...)
}

// config returns a configuration with a token, or the administrator's. server is the URL; ""
// means that of the API server.
func (w *world) config(t *testing.T, token, server string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		config.BearerToken = token
		config.CertData, config.KeyData, config.CertFile, config.KeyFile = nil, nil, "", ""
	}
	if server != "" {
		config.Host = server
	}
	config.ServerName = kube.ServerName
	config.Timeout = requestTimeout
	return config
}

// site is a running issuer.
type site struct {
	*TokenIssuer
	log  *records
	stop func()
}

// issuer starts an issuer. Its peer is edge.
func (w *world) issuer(t *testing.T, config *rest.Config, namespace string) *site {
	t.Helper()
	c, err := newCluster(config, "default")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{log: &records{}}
	s.TokenIssuer = NewTokenIssuer(c, TokenIssuerOptions{
		Gateway: "cloud", Namespace: namespace, TTL: 10 * time.Minute,
		Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	s.SetPeers([]auth.Subject{edge})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(s.stop)
	return s
}

// get sends a request with a token, and returns the status and the body.
func (w *world) get(ctx context.Context, token auth.Token, path string) (int, string, error) {
	return w.ask(ctx, token, http.MethodGet, path, "", nil)
}

func (w *world) ask(ctx context.Context, token auth.Token, method, path, body string, header http.Header) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.cluster.URL()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	if req.Header.Get("Content-Type") == "" && body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// user returns the user of a token according to the API server; empty if it is rejected.
func (w *world) user(t *testing.T, token auth.Token) string {
	t.Helper()
	status, body, err := w.ask(within(t, patience), token, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if status == http.StatusUnauthorized {
		return ""
	}
	var out struct {
		Status struct {
			UserInfo struct{ Username string }
		}
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	return out.Status.UserInfo.Username
}

// waitDead waits until the API server rejects the token, and returns how long that took.
func (w *world) waitDead(t *testing.T, token auth.Token) time.Duration {
	t.Helper()
	start := time.Now()
	eventually(t, "the token ends", func() (bool, string) {
		user := w.user(t, token)
		return user == "", "it is still " + user
	})
	return time.Since(start)
}

// poll is the polling interval for conditions without an event.
const poll = 100 * time.Millisecond

func eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	ctx := within(t, patience)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		good, saw := ok()
		if good {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not so in time; last seen: %s", what, saw)
		}
	}
}

// gate forwards to the API server while it is open. When closed, it ends connections and accepts
// new ones without answering, like a server that hangs.
type gate struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, to: to, conns: map[net.Conn]bool{}}
	g.wg.Go(g.serve)
	t.Cleanup(func() {
		l.Close()
		g.setShut(true)
		g.wg.Wait()
	})
	return g
}

func (g *gate) url() string { return "https://" + g.listener.Addr().String() }

func (g *gate) setShut(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for c := range g.conns {
		c.Close()
	}
	clear(g.conns)
}

// hold stores a connection, to be closed by the next change; false while the gate is closed.
func (g *gate) hold(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = true
	return !g.shut
}

func (g *gate) serve() {
	for {
		near, err := g.listener.Accept()
		if err != nil {
			return
		}
		if !g.hold(near) {
			continue
		}
		far, err := new(net.Dialer).DialContext(context.Background(), "tcp", g.to)
		if err != nil {
			near.Close()
			continue
		}
		g.hold(far)
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			g.wg.Go(func() {
				_, _ = io.Copy(way[0], way[1]) // it ends when either is closed
				near.Close()
				far.Close()
			})
		}
	}
}

// namespace creates a namespace, named after the test.
func (w *world) namespace(t *testing.T, name string) string {
	t.Helper()
	w.kubectl(t, "", "create", "namespace", name)
	return name
}

// uid returns an account's UID; empty if there is none.
func (w *world) uid(t *testing.T, namespace, account string) string {
	t.Helper()
	return w.kubectl(t, "", "get", "serviceaccount", "-n", namespace, account, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
}

// account returns an account's manifest.
func account(namespace, name string, labels map[string]string, key string) string {
	b, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": labels, "annotations": map[string]string{annotationKey: key}},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// manifest returns a shipped manifest.
func manifest(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../cmd/postern/deploy/rbac/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func accountOf(namespace string, s auth.Subject) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", namespace, nameOf(s))
}
