//go:build linux && e2e && mcs

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// churnVariable sets how many connections there are while pods come and go, and
	// churnConnections is the default. churnRate is how many a second.
	churnVariable    = "POSTERN_CHURN"
	churnConnections = 10_000
	churnRate        = 80
	// churnSlots is how many pods of each namespace come and go at a time.
	churnSlots = 2
	// toldWithin is how much later than the test the gateway may hear of a change from the API
	// server.
	toldWithin = time.Second
	// unreadyFor is how long a pod is not ready, so that a gateway that uses it is noticed.
	unreadyFor = 4 * toldWithin
	// Limits of what a gateway holds more than before, once all is over.
	moreGoroutines, moreFiles, moreAfterChurn = 16, 8, 8 << 20
	// quietWithin is how long it may take until that is so. A gateway returns memory after a minute
	// with little traffic.
	quietWithin = 4 * time.Minute
)

// churnRange is small, so that pods get the addresses of earlier ones, also of the other namespace.
var churnRange = netip.MustParsePrefix("10.244.0.0/27")

var churnNamespaces = []string{"shop", "bank"}

// sizeOf returns the size of a test that an environment variable sets.
func sizeOf(t *testing.T, variable string, size int) int {
	t.Helper()
	if s := os.Getenv(variable); s != "" {
		return atoi(t, s)
	}
	return size
}

// servingPod returns a restricted pod of the test server, which `app` selects.
func servingPod(name, app string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: server
    image: `+image.TestServerName+`
    imagePullPolicy: Never
    readinessProbe: {httpGet: {port: 8080, path: /readyz}, periodSeconds: 1, failureThreshold: 1}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`, name, app)
}

// exportedWeb is a service of pods that come and go, and its export.
const exportedWeb = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web}
`

// connection is an element of the report of the test server's clients.
type connection struct {
	URL          int
	Began, Ended time.Time
	Who, Error   string
}

// inClient returns kubectl's arguments for the test server in the pod of clients.
func inClient(args ...string) []string {
	return append([]string{"exec", "-n", "shop", "client", "--", "/bin/testserver"}, args...)
}

// startClient starts a client in the pod of clients.
func (c *cluster) startClient(args ...string) *netlab.Process {
	c.t.Helper()
	return c.node.Start(netlab.Command{Args: append([]string{c.KubectlPath(), "--kubeconfig", c.Kubeconfig()}, inClient(args...)...)})
}

// report runs a client in the pod of clients, and reads its report into v.
func (c *cluster) report(v any, args ...string) {
	c.t.Helper()
	out, err := c.Kubectl(within(c.t, 30*time.Minute), "", inClient(args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), v)
	}
	if err != nil {
		c.t.Fatalf("%s: %q: %v: %.300s", c.name, args, err, out)
	}
}

// metrics returns the metrics of the active gateway.
func (c *cluster) metrics() (string, error) {
	c.t.Helper()
	pod := c.activePod()
	if pod == "" {
		return "", fmt.Errorf("%s: no gateway is active", c.name)
	}
	address := c.kubectl("get", "pod", "-n", gatewayNamespace, pod, "-o", "jsonpath={.status.podIP}")
	req, err := http.NewRequestWithContext(within(c.t, patience), http.MethodGet, "http://"+address+":9520/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := client(c.node).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", c.name, resp.Status)
	}
	return string(text), err
}

// waitMetric waits until a metric of the active gateway has a value.
func (c *cluster) waitMetric(want float64, name string, labels ...string) {
	c.t.Helper()
	eventually(within(c.t, patience), c.t, fmt.Sprintf("%s: %s%q is %v", c.name, name, labels, want), func() (bool, string) {
		text, err := c.metrics()
		if err != nil {
			return false, err.Error()
		}
		n, _ := sumSeries(c.t, text, name, labels...)
		return n == want, fmt.Sprint(n)
	})
}

// holding is what a gateway holds.
type holding struct {
	open, goroutines, files, memory int
}

// holds returns what the active gateway holds.
func (c *cluster) holds() (h holding, err error) {
	c.t.Helper()
	text, err := c.metrics()
	if err != nil {
		return h, err
	}
	for _, name := range []string{"postern_service_open_connections", "postern_forward_open_udp_flows"} {
		n, _ := sumSeries(c.t, text, name)
		h.open += int(n)
	}
	n, known := sumSeries(c.t, text, "go_goroutines")
	pid, _ := c.process(gatewayNamespace, c.activePod(), "/postern")
	files, err := os.ReadDir(procFile(pid, "fd"))
	if !known || err != nil {
		return h, fmt.Errorf("%s: %v goroutines, %d files: %w", c.name, n, len(files), err)
	}
	h.goroutines, h.files, h.memory = int(n), len(files), rssAnon(c.t, pid)
	return h, nil
}

// waitHolds waits until nothing is open, and no more is held than before. It returns what is.
func (c *cluster) waitHolds(before *holding) (h holding) {
	c.t.Helper()
	eventually(within(c.t, quietWithin), c.t, c.name+" holds no more than before", func() (bool, string) {
		var err error
		h, err = c.holds()
		return err == nil && h.open == 0 && (before == nil || h.goroutines <= before.goroutines+moreGoroutines &&
			h.files <= before.files+moreFiles && h.memory <= before.memory+moreAfterChurn), fmt.Sprintf("%+v, before %+v, %v", h, before, err)
	})
	return h
}

// TestPodsComeAndGo has pods of cloud connect to pods of edge, in two namespaces that have a service of
// the same name, while those come, go, and fail readiness. No connection is answered by a pod of which
// edge's API server has told that it is not ready, or by one of the other namespace. Connections may
// only fail with a pod: one that ends takes those that it has accepted and not answered with it, and
// those that are about to be accepted until the API server has told. Nothing is left of them in the
// gateways.
func TestPodsComeAndGo(t *testing.T) {
	count := sizeOf(t, churnVariable, churnConnections)
	s := startClusterset(t, churnRange, nil, "edge", "cloud")
	s.install("mcs.enabled=true", "mcs.allNamespaces=true")
	s.peer()
	for _, one := range s.all {
		for _, ns := range churnNamespaces {
			one.restricted(ns)
		}
	}
	s.cloud.run("shop", "client", servingPod("client", "client"))
	c := &churn{edge: s.edge, pods: map[string]*churned{}, changed: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		err := s.edge.WaitFor(ctx, "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb", func(b []byte) bool {
			c.told(b)
			return false
		})
		if ctx.Err() == nil {
			t.Errorf("the watch of edge's pods has ended: %v", err)
		}
	})
	defer watching.Wait()
	defer stop()
	var urls []string
	for _, ns := range churnNamespaces {
		s.edge.run(ns, ns+"-stays", servingPod(ns+"-stays", "web"))
		s.edge.apply(exportedWeb, "apply", "-n", ns, "-f", "-")
		url := "http://web." + ns + ".svc.clusterset.local/"
		eventually(within(t, patience), t, ns+" is served", func() (bool, string) {
			out, err := s.cloud.Kubectl(within(t, patience), "", inClient("get", url)...)
			return err == nil && strings.Contains(out, ns+"-stays"), fmt.Sprint(out, err)
		})
		urls = append(urls, url)
	}
	load := func(count int) []string { // what a load needs remains after the first
		return append([]string{"load", strconv.Itoa(count), strconv.Itoa(churnRate)}, urls...)
	}
	s.cloud.report(&[]connection{}, load(max(count/20, 100))...)
	before := map[*cluster]holding{}
	for _, one := range s.all {
		before[one] = one.waitHolds(nil)
	}

	p := s.cloud.startClient(load(count)...)
	changing, enough := context.WithCancel(t.Context())
	var slots sync.WaitGroup
	for _, ns := range churnNamespaces {
		for i := range churnSlots {
			slots.Go(func() {
				for n := 0; changing.Err() == nil; n++ {
					if err := c.lives(ns, fmt.Sprintf("%s-%d-%d", ns, i, n)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	code, err := p.Wait(within(t, patience+10*time.Duration(count)*time.Second/churnRate))
	enough()
	slots.Wait()
	if err != nil || code != 0 {
		t.Fatalf("the client ended with %d, %v: %s", code, err, p.Stderr())
	}
	var all []connection
	if err := json.Unmarshal([]byte(p.Stdout()), &all); err != nil || len(all) != count {
		t.Fatalf("the report has %d connections: %v", len(all), err)
	}
	c.judge(t, all)
	for _, one := range s.all {
		b := before[one]
		t.Logf("%s held %+v before, and %+v after", one.name, b, one.waitHolds(&b))
	}
}

// churn is what the pods of edge are said to be. It is safe for concurrent use.
type churn struct {
	edge *cluster

	mu      sync.Mutex
	pods    map[string]*churned // by name, which begins with the namespace
	changed chan struct{}       // closed and replaced
	came    int
	unready int
	reused  int // addresses that another pod had before
}

// churned is a pod.
type churned struct {
	address string
	ready   []span    // as the API server told
	ending  time.Time // when it was deleted; zero if it is not
}

// span is a time. It has not ended if to is zero.
type span struct{ from, to time.Time }

// told is called with each state of the services' endpoints.
func (c *churn) told(b []byte) {
	now := time.Now()
	var x discoveryv1.EndpointSlice
	if json.Unmarshal(b, &x) != nil {
		return
	}
	ready := map[string]string{}
	for _, e := range x.Endpoints {
		if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready && len(e.Addresses) > 0 {
			ready[e.TargetRef.Name] = e.Addresses[0]
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, address := range ready {
		p := c.pods[name]
		if p == nil {
			for _, other := range c.pods {
				if other.address == address {
					c.reused++
					break
				}
			}
			p = &churned{address: address}
			c.pods[name] = p
			c.came++
		}
		if !p.isReady() {
			p.ready = append(p.ready, span{from: now})
		}
	}
	for name, p := range c.pods {
		if strings.HasPrefix(name, x.Namespace+"-") && ready[name] == "" && p.isReady() {
			p.ready[len(p.ready)-1].to = now
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// isReady reports whether the API server says so. churn.mu is held.
func (p *churned) isReady() bool {
	return len(p.ready) > 0 && p.ready[len(p.ready)-1].to.IsZero()
}

// await waits until the API server says that a pod is ready, or is not, and returns its address.
func (c *churn) await(ctx context.Context, name string, ready bool) (string, error) {
	for {
		c.mu.Lock()
		p, changed := c.pods[name], c.changed
		if p != nil && p.isReady() == ready {
			defer c.mu.Unlock()
			return p.address, nil
		}
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("pod %s: ready is not %v: %w", name, ready, ctx.Err())
		}
	}
}

// lives has a pod come, fail readiness and become ready again, or not, and end, with or without notice.
// It runs outside the test's goroutine.
func (c *churn) lives(namespace, name string) error {
	ctx, cancel := context.WithTimeout(c.edge.t.Context(), 3*patience)
	defer cancel()
	if _, err := c.edge.Kubectl(ctx, servingPod(name, "web"), "create", "-n", namespace, "-f", "-"); err != nil {
		return err
	}
	address, err := c.await(ctx, name, true)
	if err != nil {
		return err
	}
	for _, ready := range []bool{false, true}[:rand.IntN(3)] {
		path := "/unready"
		if ready {
			path = "/ready"
		}
		if _, err := fetch(ctx, c.edge.node, "http://"+address+":8080"+path); err != nil {
			return err
		}
		if _, err := c.await(ctx, name, ready); err != nil {
			return err
		}
		if ready {
			continue
		}
		c.mu.Lock()
		c.unready++
		c.mu.Unlock()
		select {
		case <-time.After(unreadyFor):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	c.pods[name].ending = time.Now()
	c.mu.Unlock()
	args := []string{"delete", "pod", "-n", namespace, name}
	if rand.IntN(2) == 0 {
		args = append(args, "--grace-period=0", "--force")
	}
	if _, err := c.edge.Kubectl(ctx, "", args...); err != nil {
		return err
	}
	_, err = c.await(ctx, name, false)
	return err
}

// judge checks who answered each connection, and that those that failed had a reason.
func (c *churn) judge(t *testing.T, all []connection) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	went := 0
	for _, p := range c.pods {
		if !p.ending.IsZero() {
			went++
		}
	}
	answered, failed, latest := 0, map[string]int{}, time.Duration(0)
	for _, x := range all {
		namespace := churnNamespaces[x.URL]
		if x.Error != "" {
			failed[strings.TrimSpace(x.Error[strings.LastIndex(x.Error, ": ")+1:])]++
			if !c.excuse(namespace, x) {
				t.Errorf("a connection to %s from %v to %v failed, and no pod of it ended: %s", namespace, x.Began, x.Ended, x.Error)
			}
			continue
		}
		answered++
		p := c.pods[x.Who]
		if p == nil || !strings.HasPrefix(x.Who, namespace+"-") {
			t.Errorf("%s answered a connection to %s", x.Who, namespace)
			continue
		}
		late := p.notReadyFor(x)
		if latest = max(latest, late); late > toldWithin {
			t.Errorf("%s answered a connection that began %v after the API server had told that it was not ready", x.Who, late)
		}
	}
	cut := len(all) - answered
	t.Logf("%d connections were answered and %d failed, by what: %v; %d pods came, %d with the address of an earlier one, %d ended, and readiness failed %d times; "+
		"the latest answer of a pod that was not ready was to a connection that began %v after the API server had told", answered, cut, failed, c.came, c.reused, went, c.unready, latest.Round(time.Millisecond))
	if most := went * int(slow()); cut > most {
		t.Errorf("%d connections failed, want at most one for each of %d pods that ended", cut, most)
	}
	if went == 0 || c.unready == 0 {
		t.Error("too little happened")
	}
}

// notReadyFor returns how long it had been told, when a connection began, that the pod that answered it
// is not ready; 0 if it was ready then or until it answered.
func (p *churned) notReadyFor(x connection) time.Duration {
	late := time.Duration(-1)
	for _, r := range p.ready {
		switch {
		case r.from.After(x.Ended.Add(toldWithin)):
		case r.to.IsZero() || r.to.After(x.Began):
			return 0
		default:
			late = x.Began.Sub(r.to)
		}
	}
	if late < 0 { // it has never been ready
		return time.Hour
	}
	return late
}

// excuse reports whether a connection failed while a pod of its service was ending, as the API server
// had not yet told when it began.
func (c *churn) excuse(namespace string, x connection) bool {
	for name, p := range c.pods {
		if !strings.HasPrefix(name, namespace+"-") || p.ending.IsZero() || p.ending.After(x.Ended) {
			continue
		}
		until := p.ending
		for _, r := range p.ready {
			if r.to.After(until) {
				until = r.to
			}
		}
		if x.Began.Before(until.Add(toldWithin)) {
			return true
		}
	}
	return false
}
