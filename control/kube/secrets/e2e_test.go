//go:build linux && e2e

package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/guard/guardtest"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/control/kube/role"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/tunnel/peer"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// rights are the gateway's permissions for its state.
const rights = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: postern}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: postern}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [create]}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [postern-state-identities, postern-state-key, postern-state-learned, postern-state-peers, postern-state-tickets]
  verbs: [get, update]
- {apiGroups: [""], resources: [pods], resourceNames: [postern-0, postern-1], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: postern}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: postern}
subjects: [{kind: ServiceAccount, name: postern, namespace: default}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: postern}
spec:
  selector: {matchLabels: {a: b}}
  serviceName: postern
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: i}]}
`

// pod returns a pod of the StatefulSet, which has no controller here.
func pod(name, owner string) string {
	b, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "ownerReferences": []any{map[string]any{
			"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "postern", "uid": owner, "controller": true, "blockOwnerDeletion": true,
		}}},
		"spec": map[string]any{
			"serviceAccountName": "postern", "automountServiceAccountToken": false,
			"containers": []any{map[string]any{"name": "c", "image": "i"}},
		},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// world is a real API server and a gateway's account with only those rights.
type world struct {
	t       *testing.T
	cluster kubetest.Cluster
	gateway *kube.Cluster
	pod     *role.Pod
	owner   string // the StatefulSet's UID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := kubetest.Start(t)
	guardtest.Install(t, c.Cluster)
	w := &world{t: t, cluster: c}
	w.kubectl(rights, "apply", "-f", "-")
	w.owner = w.kubectl("", "get", "statefulset", "postern", "-o", "jsonpath={.metadata.uid}")
	w.kubectl(pod("postern-0", w.owner), "apply", "-f", "-")
	t.Setenv("KUBECONFIG", w.kubeconfig(w.kubectl("", "create", "token", "postern")))
	var err error
	if w.gateway, err = kube.Connect("test"); err != nil {
		t.Fatal(err)
	}
	if w.pod, err = role.New(w.gateway, "postern-0", ""); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) kubectl(stdin string, args ...string) string {
	w.t.Helper()
	return w.cluster.Run(w.t, stdin, args...)
}

// kubeconfig writes a kubeconfig for a bearer token.
func (w *world) kubeconfig(token string) string {
	w.t.Helper()
	return w.cluster.Bearer(w.t, "", token)
}

// open opens a gateway's store, in a directory that may be new.
func (w *world) open(dir, term string, fenced func()) *state.Store {
	w.t.Helper()
	owner, err := w.pod.Owner(within(w.t, patience))
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := New(w.gateway, Options{Release: "postern", Term: term, Owner: owner, OnFenced: fenced})
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := state.Open(filepath.Join(dir, "state"), nil, state.WithBackend(b))
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func add(s *state.Store, name string, k byte) error {
	return s.Update(func(p *state.Peers) error {
		return p.Put(state.Peer{Name: name, PublicKey: peer.PublicKey{k}, PresharedKey: peer.PresharedKeyFromBytes([32]byte{0x5e, k})})
	})
}

// names accepts every name.
type names struct{}

func (names) Reserve(string, peer.PublicKey, bool) error { return nil }

func invite(t *testing.T, s *state.Store, key peer.PrivateKey) (*ticket.Book, ticket.Info) {
	t.Helper()
	b, err := ticket.OpenBook(time.Now(), ticket.Options{Key: key, Name: "cloud", Storage: s, Names: names{}})
	if err != nil {
		t.Fatal(err)
	}
	_, info, err := b.Invite(time.Now(), ticket.Invitation{Allow: []string{"auth"}})
	if err != nil {
		t.Fatal(err)
	}
	return b, info
}

// TestStateInARealCluster is one story, in which each step continues from the one before.
func TestStateInARealCluster(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	fenced := make(chan struct{})
	s := w.open(dir, "a", func() { close(fenced) })
	key, err := s.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := add(s, "edge", 1); err != nil {
		t.Fatal(err)
	}
	t.Logf("a change takes %v", time.Since(start).Round(time.Millisecond))
	_, open := invite(t, s, key)

	t.Run("objects", func(t *testing.T) { testObjects(t, w) })

	// The pod disappears; the next one has an empty directory.
	start = time.Now()
	next := w.open(t.TempDir(), "b", nil)
	t.Logf("a start takes %v", time.Since(start).Round(time.Millisecond))
	if again, err := next.PrivateKey(); err != nil || !again.Equal(key) {
		t.Errorf("the key is another (%v)", err)
	}
	if p, ok := next.Peers().Get("edge"); !ok || p.PublicKey != (peer.PublicKey{1}) || p.PresharedKey.IsZero() {
		t.Errorf("the peer is %+v (%v)", p, ok)
	}
	if list := next.Tickets().List; len(list) != 1 || list[0].ID != open.ID || list[0].State != ticket.Open {
		t.Errorf("the tickets are %+v", list)
	}

	// The first one was still alive.
	if err := add(s, "paris", 3); !errors.Is(err, state.ErrFenced) {
		t.Errorf("the one before: %v, want %v", err, state.ErrFenced)
	}
	select {
	case <-fenced:
	default:
		t.Error("the one before was not told")
	}
	if err := add(next, "berlin", 2); err != nil {
		t.Errorf("the present one: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	t.Run("an outage", func(t *testing.T) { testOutage(t, w, next) })

	// An outdated directory, and a third gateway that takes over.
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	last := w.open(dir, "c", nil)
	if _, there := last.Peers().Get("edge"); there || last.Peers().Len() != 2 {
		t.Errorf("the peers are %+v, want berlin and oslo", last.Peers().All())
	}
	if err := last.Close(); err != nil {
		t.Error(err)
	}
	t.Run("everything is lost", func(t *testing.T) { testLoss(t, w, key) })
}

// testLoss restores a backup after all Secrets and their owner are gone.
func testLoss(t *testing.T, w *world, key peer.PrivateKey) {
	operator, err := kube.ConnectContext(kubeconfig.Flags{File: w.cluster.Bearer(t, "default", w.cluster.Administrator(t))}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCopy(operator, "postern")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := c.Backup(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	w.kubectl("", append([]string{"delete", "secret"}, Names("postern")...)...)
	w.kubectl("", "delete", "statefulset", "postern")
	if err := c.Restore(within(t, patience), kept, false); err != nil {
		t.Fatal(err)
	}
	for _, name := range Names("postern") {
		if owner := w.kubectl("", "get", "secret", name, "-o", "jsonpath={.metadata.ownerReferences}"); owner != "" {
			t.Errorf("%s belongs to %s, which is gone", name, owner)
		}
	}
	s := w.open(t.TempDir(), "d", nil)
	defer s.Close()
	if again, err := s.PrivateKey(); err != nil || !again.Equal(key) || s.Peers().Len() != 2 {
		t.Errorf("the key is another (%v), or the peers are: %+v", err, s.Peers().All())
	}
	w.kubectl(string(kept), "apply", "--dry-run=server", "-f", "-") // kubectl accepts it as well
}

func testObjects(t *testing.T, w *world) {
	for _, name := range Names("postern") {
		got := w.kubectl("", "get", "secret", name, "-o",
			`jsonpath={.type} {.metadata.labels.app\.kubernetes\.io/instance} {.metadata.ownerReferences[0].kind} {.metadata.ownerReferences[0].uid}`)
		if want := "postern.dev/state postern StatefulSet " + w.owner; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, what := range []string{"list secrets", "get secret/other", "delete secret/postern-state-key"} {
		verb, object, _ := strings.Cut(what, " ")
		out, err := w.cluster.Kubectl(within(t, patience), "", "auth", "can-i", verb, object, "--as=system:serviceaccount:default:postern")
		if err == nil || !strings.Contains(out+err.Error(), "no") {
			t.Errorf("%s: %s, want that it may not", what, out)
		}
	}
}

func testOutage(t *testing.T, w *world, s *state.Store) {
	if err := w.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err := add(s, "oslo", 4)
	if !errors.Is(err, state.ErrBackend) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a change: %v, want %v", err, state.ErrBackend)
	}
	t.Logf("refused after %v: %v", time.Since(start).Round(time.Millisecond), err)
	if s.Peers().Len() != 2 {
		t.Errorf("%d peers, want 2", s.Peers().Len())
	}
	err = s.Restrict(func(p *state.Peers) error { p.Remove("edge"); return nil })
	if _, there := s.Peers().Get("edge"); there || !errors.Is(err, state.ErrNotStored) {
		t.Errorf("a removal: %v, edge is there: %v", err, there)
	}
	if err := w.cluster.StartAPIServer(within(t, 5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for s.Unstored() { // it is stored without being asked to
		if time.Now().After(deadline) {
			t.Fatal("the removal was not stored when the API server was back")
		}
		wait(t, 100*time.Millisecond)
	}
	if err := add(s, "oslo", 4); err != nil {
		t.Errorf("a change when it is back: %v", err)
	}
	data := w.kubectl("", "get", "secret", "postern-state-peers", "-o", `go-template={{index .data "peers.json" | base64decode}}`)
	if strings.Contains(data, `"edge"`) || !strings.Contains(data, `"oslo"`) || strings.Contains(data, `"paris"`) {
		t.Errorf("the Secret has %s", data)
	}
}

// wait is the polling interval for conditions without an event.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
