//go:build linux && e2e

package lease

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/guard/guardtest"
	"github.com/postern-dev/postern/control/kube/role"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// rights are the replicas' permissions for the lease and their labels.
const rights = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: postern}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: postern}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [postern], verbs: [get, update, watch]}
- {apiGroups: [""], resources: [pods], resourceNames: [postern-0, postern-1], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: postern}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: postern}
subjects: [{kind: ServiceAccount, name: postern, namespace: default}]
---
apiVersion: v1
kind: Pod
metadata: {name: postern-0}
spec: {serviceAccountName: postern, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: postern-1, labels: {postern.dev/role: active}} # from an earlier life
spec: {serviceAccountName: postern, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`

// world is a real API server.
type world struct {
	t       *testing.T
	cluster kubetest.Cluster
	gateway *kube.Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := kubetest.Start(t)
	guardtest.Install(t, c.Cluster)
	w := &world{t: t, cluster: c}
	w.kubectl(rights, "apply", "-f", "-")
	t.Setenv("KUBECONFIG", w.kubeconfig(w.kubectl("", "create", "token", "postern")))
	var err error
	if w.gateway, err = kube.Connect("test"); err != nil {
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

// marked returns the pods with the label.
func (w *world) marked() string {
	w.t.Helper()
	return w.kubectl("", "get", "pods", "-l", role.Label+"="+role.Active, "-o", "jsonpath={.items[*].metadata.name}")
}

// requests returns the number of requests about leases, by the API server's own metrics, which
// include its own renewals, 0.2 a second. A watch counts once.
func (w *world) requests() float64 {
	w.t.Helper()
	sum := 0.0
	lines := bufio.NewScanner(strings.NewReader(w.kubectl("", "get", "--raw", "/metrics")))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="leases"`) || !strings.Contains(line, `scope="resource"`) {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			w.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// mortal is a connection to the API server that ends with its node.
type mortal struct {
	leases
	dead atomic.Bool
}

func (m *mortal) update(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if m.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.leases.update(ctx, x)
}

// member is a replica in real time.
type member struct {
	*Lease
	way    *mortal
	stop   func()
	began  chan time.Time // when it became active
	ended  chan error     // the cause of that role's end
	active atomic.Bool
}

func (w *world) enter(name string) *member {
	w.t.Helper()
	pod, err := role.New(w.gateway, name, "uid")
	if err != nil {
		w.t.Fatal(err)
	}
	api, err := newRemote(w.gateway, "postern")
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{way: &mortal{leases: api}, began: make(chan time.Time, 9), ended: make(chan error, 9)}
	m.Lease, err = newLease(m.way, Options{Name: "postern", Identity: pod.Identity(), Pods: pod, Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil))})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	m.stop = sync.OnceFunc(func() { cancel(); <-done; api.redial() })
	w.t.Cleanup(m.stop)
	go func() {
		defer close(done)
		err := m.Run(ctx, func(ctx context.Context) error {
			m.active.Store(true)
			m.began <- time.Now()
			<-ctx.Done()
			m.active.Store(false)
			m.ended <- context.Cause(ctx)
			return nil
		})
		if err != nil {
			w.t.Error(err)
		}
	}()
	return m
}

// next waits for the next value.
func next[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not so in time", what)
		panic("unreachable")
	}
}

func (w *world) eventually(what string, ok func() (bool, string)) {
	w.t.Helper()
	ctx := within(w.t, patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		good, saw := ok()
		if good {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("%s: not so in time; last seen: %s", what, saw)
		}
	}
}

// TestTheLeaseInARealCluster is one story, in which each step continues from the one before.
// Exact durations are tested in lease_test.go: a real API server takes its time.
func TestTheLeaseInARealCluster(t *testing.T) {
	w := newWorld(t)
	a := w.enter("postern-0")
	next(t, "a is active", a.began)
	b := w.enter("postern-1")
	w.eventually("a alone has the label", func() (bool, string) { got := w.marked(); return got == "postern-0", got })

	w.eventually("b has said that it stands by, and a has heard it", func() (bool, string) {
		got := w.kubectl("", "get", "lease", "postern", "-o", `jsonpath={.metadata.annotations.postern\.dev/standby}`)
		return got == "postern-1_uid" && time.Since(a.Status().Answered) < time.Second, got
	})
	before, start := w.requests(), time.Now()
	<-time.After(20 * time.Second)
	rate := (w.requests() - before) / time.Since(start).Seconds()
	t.Logf("%.2f requests/s", rate)
	if rate >= 0.7 {
		t.Errorf("%.2f requests/s, want less than 0.7", rate)
	}

	start = time.Now()
	a.stop()
	at := next(t, "b follows", b.began)
	t.Logf("after a clean end b is active after %v", at.Sub(start).Round(time.Millisecond))
	if took := at.Sub(start); took >= DefaultDuration {
		t.Errorf("it took %v, as long as after a silent end", took)
	}
	w.eventually("b alone has the label", func() (bool, string) { got := w.marked(); return got == "postern-1", got })

	c := w.enter("postern-0")
	w.eventually("c knows b", func() (bool, string) { got := c.Status().Holder; return got == "postern-1_uid", got })
	term := b.Term()
	if err := w.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * DefaultDuration)
	if !b.active.Load() || c.active.Load() {
		t.Errorf("in an outage b is active: %v, c: %v; want b alone", b.active.Load(), c.active.Load())
	}
	if err := w.cluster.StartAPIServer(within(t, 5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	w.eventually("both are answered again", func() (bool, string) {
		return b.Status().Answered.After(back) && c.Status().Answered.After(back), "no"
	})
	<-time.After(DefaultDuration)
	if !b.active.Load() || c.active.Load() || b.Term() != term {
		t.Errorf("after the outage b is active: %v, c: %v; want b alone, in the term it had", b.active.Load(), c.active.Load())
	}

	b.way.dead.Store(true)
	start = time.Now()
	at = next(t, "c replaces b", c.began)
	t.Logf("after a silent end c is active after %v", at.Sub(start).Round(time.Millisecond))
	w.eventually("c alone has the label", func() (bool, string) { got := w.marked(); return got == "postern-0", got })
	b.way.dead.Store(false)
	start = time.Now()
	if cause := next(t, "b hears of it", b.ended); !errors.Is(cause, ErrLost) {
		t.Errorf("b ended by %v, want %v", cause, ErrLost)
	}
	t.Logf("b has ended %v after it could ask again", time.Since(start).Round(time.Millisecond))
	if !c.active.Load() {
		t.Error("c is not active any more")
	}
	b.stop()
	c.stop()
	if got := w.marked(); got != "" {
		t.Errorf("after the end %s has the label", got)
	}
	if got := w.kubectl("", "get", "lease", "postern", "-o", "jsonpath={.spec.holderIdentity}"); got != "" {
		t.Errorf("after the end %s has the lease", got)
	}
}
