//go:build linux && e2e

package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/tunnel/peer"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

// world is a real API server.
type world struct {
	t       *testing.T
	cluster kubetest.Cluster
	// token is an administrator's.
	token string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := kubetest.Start(t)
	return &world{t: t, cluster: c, token: c.Administrator(t)}
}

func (w *world) install() {
	w.t.Helper()
	w.cluster.Define(w.t)
}

// kubectl runs kubectl as the administrator.
func (w *world) kubectl(stdin string, args ...string) string {
	w.t.Helper()
	return w.cluster.Run(w.t, stdin, args...)
}

func (w *world) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	out, err := w.cluster.Kubectl(ctx, stdin, args...)
	return strings.TrimSpace(out), err
}

// site is a namespace with a gateway and its controller.
type site struct {
	*world
	t         *testing.T
	namespace string
	gateway   *fakeGateway
	log       *buffer
	// token is the controller's.
	token string
	stop  func()
}

// site creates a site; run starts the controller.
func (w *world) site(t *testing.T, namespace string) *site {
	t.Helper()
	w.kubectl("", "create", "namespace", namespace)
	return &site{world: w, t: t, namespace: namespace, gateway: newFakeGateway(), log: &buffer{}, token: w.token}
}

func (s *site) controller() *Controller {
	s.t.Helper()
	s.t.Setenv("KUBECONFIG", s.kubeconfig())
	k, err := kube.Connect("test")
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := New(Options{
		Cluster: k, Gateway: s.gateway, Name: "edge",
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// kubeconfig writes the controller's kubeconfig.
func (s *site) kubeconfig() string {
	return s.cluster.Bearer(s.t, s.namespace, s.token)
}

func (s *site) run() *site {
	s.t.Helper()
	c := s.controller()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(s.stop)
	return s
}

// apply applies manifests.
func (s *site) apply(manifests ...string) {
	s.t.Helper()
	s.kubectl(strings.Join(manifests, "\n---\n"), "apply", "-n", s.namespace, "-f", "-")
}

// await waits until an object of a resource satisfies fits.
func (s *site) await(resource, name string, what string, fits func(o *v1alpha1.Peer) bool) *v1alpha1.Peer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var last v1alpha1.Peer
	path := fmt.Sprintf("/apis/postern.dev/v1alpha1/namespaces/%s/%s?fieldSelector=metadata.name%%3D%s", s.namespace, resource, name)
	if err := s.cluster.WaitFor(ctx, path, func(object []byte) bool {
		last = v1alpha1.Peer{}
		return json.Unmarshal(object, &last) == nil && fits(&last)
	}); err != nil {
		s.t.Fatalf("%s: %v\n%s", what, err, s.log)
	}
	return &last
}

// peer waits until a Peer satisfies fits.
func (s *site) peer(name, what string, fits func(o *v1alpha1.Peer) bool) *v1alpha1.Peer {
	s.t.Helper()
	return s.await(v1alpha1.PeerResource, name, what, fits)
}

// eventually polls for a condition without an event.
func (s *site) eventually(what string, holds func() (bool, string)) {
	s.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := holds()
		if ok {
			return
		}
		select {
		case <-deadline:
			s.t.Fatalf("%s: it does not; last: %s\n%s", what, seen, s.log)
		case <-tick.C:
		}
	}
}

// manifest returns a Peer's manifest.
func manifest(name string, key peer.PublicKey, spec ...string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "apiVersion: postern.dev/v1alpha1\nkind: Peer\nmetadata: {name: %q}\nspec:\n  publicKey: %q\n", name, key.String())
	for _, line := range spec {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

// keyOf returns one of many keys.
func keyOf(n int) peer.PublicKey {
	return peer.PublicKey{byte(n >> 8), byte(n), 0x77}
}

// change changes the gateway and signals the change.
func (g *fakeGateway) change(f func()) {
	g.mu.Lock()
	f()
	told := g.onChange
	g.mu.Unlock()
	told()
}

// trouble returns the problems reported to the gateway.
func (g *fakeGateway) trouble() []check.OwnProblem {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.problems)
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
