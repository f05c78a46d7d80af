//go:build linux && e2e && mcs

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const (
	// exportCount is how many services the clusters export together, each about as many. Every
	// service has a TCP and a UDP port.
	exportCount = 500
	// changedWithin is how long a change of one service may take until it is visible elsewhere.
	changedWithin = 2 * time.Second
	// restFor is how long the clusters are observed at rest, with at most restRequests requests
	// per second of each gateway.
	restFor      = 2 * time.Minute
	restRequests = 1.0
	// restAfter is how long a gateway keeps what it needed before, and restEach how often its
	// memory is read then. Garbage makes it differ by 5 MB within a minute, so the mean counts.
	restAfter = 70 * time.Second
	restEach  = 10 * time.Second
	// moreMemory is how much of a gateway's memory the services of all clusters may take, in
	// bytes.
	moreMemory = 20 << 20
	// alonePart is how much longer the import may take than a client that only writes the same
	// objects.
	alonePart = 2
	// pathLoss is how long the path is lost.
	pathLoss = 10 * time.Second
	// recoveredWithin bounds the recovery after a fault: peers come back within about a minute.
	recoveredWithin = 3 * time.Minute
)

// counting makes the API server count a gateway's requests separately.
const counting = `apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: counted}
spec:
  priorityLevelConfiguration: {name: workload-low}
  matchingPrecedence: 100
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {namespace: ` + gatewayNamespace + `, name: ` + release + `}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], clusterScope: true, namespaces: ["*"]}]
    nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["*"]}]
`

// requests returns how many requests of the gateway the API server has handled so far.
func (c *cluster) requests() int {
	c.t.Helper()
	n := 0
	for line := range strings.Lines(c.kubectl("get", "--raw", "/metrics")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok &&
			strings.HasPrefix(name, "apiserver_flowcontrol_dispatched_requests_total{") && strings.Contains(name, `flow_schema="counted"`) {
			x, err := strconv.ParseFloat(value, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			n += int(x)
		}
	}
	return n
}

// memory returns what the active gateway has allocated, in bytes.
func (c *cluster) memory() int {
	c.t.Helper()
	pid, _ := c.process(gatewayNamespace, c.activePod(), "/postern")
	return rssAnon(c.t, pid)
}

// memory returns the mean of each active gateway's memory at rest.
func (s *clusterset) memory(t *testing.T) map[*cluster]int {
	t.Helper()
	mean := map[*cluster]int{}
	const reads = int(restFor / restEach)
	<-time.After(restAfter)
	for range reads {
		<-time.After(restEach)
		for _, one := range s.all {
			mean[one] += one.memory() / reads
		}
	}
	return mean
}

// exported returns the names of a cluster's services.
func (s *clusterset) exported(one *cluster) (names []string) {
	share := (exportCount + len(s.all) - 1) / len(s.all)
	first := share * slices.Index(s.all, one)
	for n := first; n < min(first+share, exportCount); n++ {
		names = append(names, fmt.Sprintf("web-%03d", n))
	}
	return names
}

// serve runs a pod in each cluster to which all its services lead.
func (s *clusterset) serve(t *testing.T) {
	t.Helper()
	for _, one := range s.all {
		one.restricted("shop")
		one.run("shop", "server", tenantServer)
		one.kubectl("label", "pod", "-n", "shop", "server", "app=server")
		var manifest strings.Builder
		for _, name := range s.exported(one) {
			fmt.Fprintf(&manifest, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: server}, "+
				"ports: [{name: http, port: 80, targetPort: 8080}, {name: echo, port: 9000, protocol: UDP}]}\n", name)
		}
		one.apply(manifest.String(), "create", "-n", "shop", "-f", "-")
	}
	for _, one := range s.all {
		names := s.exported(one)
		if err := seen(t, one, slicesPath, len(names), func(x discoveryv1.EndpointSlice) bool { return len(x.Endpoints) == 1 }); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	slicesPath  = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
	importsPath = "/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports"
	// derived selects the objects that the gateway creates.
	derived           = "?labelSelector=app.kubernetes.io/managed-by%3Dpostern"
	derivedPath       = "/api/v1/namespaces/shop/services" + derived
	derivedSlicesPath = slicesPath + derived
)

// seen watches objects until the given number satisfies ok.
func seen[T any](t *testing.T, c *cluster, path string, want int, ok func(T) bool) error {
	t.Helper()
	done := map[string]bool{}
	err := c.WaitFor(within(t, patience), path, func(b []byte) bool {
		var meta struct{ Metadata struct{ Name string } }
		var x T
		if json.Unmarshal(b, &meta) == nil && json.Unmarshal(b, &x) == nil && ok(x) {
			done[meta.Metadata.Name] = true
		}
		return len(done) == want
	})
	if err != nil {
		return fmt.Errorf("%s: %d of %d: %w", c.name, len(done), want, err)
	}
	return nil
}

// imported reports whether an import has an address and is exported by one cluster.
func imported(x v1beta1.ServiceImport) bool {
	return len(x.Spec.IPs) == 1 && len(x.Status.Clusters) == 1
}

// exports returns the manifest of the exports of services.
func exports(names []string) string {
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, "---\napiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: %s}\n", name)
	}
	return out.String()
}

// together calls do for all clusters concurrently, and fails the test on an error.
func (s *clusterset) together(t *testing.T, do func(*cluster) error) {
	t.Helper()
	var running sync.WaitGroup
	for _, one := range s.all {
		running.Go(func() {
			if err := do(one); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// TestFiveHundredExports has three clusters export 500 services to each other, and breaks
// everything that can be broken meanwhile.
func TestFiveHundredExports(t *testing.T) {
	s := startClusterset(t, netip.Prefix{}, nil, "edge", "branch", "cloud")
	s.install()
	s.peer()
	without := s.memory(t)
	for _, one := range s.all {
		one.apply(counting, "apply", "-f", "-")
	}
	s.serve(t)
	s.install("mcs.enabled=true", "mcs.allNamespaces=true")
	for _, one := range s.all {
		for _, other := range s.others(one) {
			one.waitPeer(other.name, "connected", func(p peerObject) bool { return p.Status.State == "connected" })
		}
	}

	s.first(t)

	begin, used := time.Now(), processorTimes(t)
	s.together(t, func(one *cluster) error {
		if _, err := one.Kubectl(within(t, patience), exports(s.exported(one)), "create", "-n", "shop", "-f", "-"); err != nil {
			return err
		}
		t.Logf("%s: all is exported after %v", one.name, time.Since(begin).Round(10*time.Millisecond))
		err := seen(t, one, derivedPath, exportCount, func(x corev1.Service) bool { return x.Spec.ClusterIP != "" })
		if err == nil {
			t.Logf("%s: all Services are there after %v", one.name, time.Since(begin).Round(10*time.Millisecond))
			err = seen(t, one, derivedSlicesPath, exportCount, func(x discoveryv1.EndpointSlice) bool { return len(x.Endpoints) == 1 })
		}
		if err == nil {
			err = seen(t, one, importsPath, exportCount, imported)
		}
		t.Logf("%s: all is imported after %v", one.name, time.Since(begin).Round(10*time.Millisecond))
		return err
	})
	took := time.Since(begin)
	for name, d := range processorTimes(t) {
		if d -= used[name]; d > took/100 {
			t.Logf("meanwhile %s used %v of %v of processor time", name, d, (time.Duration(runtime.NumCPU()) * took).Round(10*time.Millisecond))
		}
	}
	written := map[*cluster][]object{}
	for _, one := range s.all {
		written[one] = one.written()
	}
	s.change(t)
	s.use(t)
	s.rest(t, without)
	s.takeover(t)
	s.faults(t)
	s.gone(t)
	// API servers that share few processors may take longer for so many writes than an import
	// may.
	alone := s.alone(t, written)
	t.Logf("500 exports are imported after %v, want at most %v; a client that does nothing but write the same takes %v", took.Round(10*time.Millisecond), importedWithin, alone.Round(10*time.Millisecond))
	if took > max(slow()*importedWithin, alonePart*alone) {
		t.Errorf("500 exports are imported after %v, want at most %v or %d times what a client alone takes", took, slow()*importedWithin, alonePart)
	}
}

// object is an API object, with the path of its kind.
type object struct {
	path string
	body map[string]any
}

// written returns what the cluster's gateway has written, in a form that another client can
// write.
func (c *cluster) written() (out []object) {
	c.t.Helper()
	for _, path := range []string{derivedPath, derivedSlicesPath, importsPath + derived} {
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(c.kubectl("get", "--raw", path)), &list); err != nil {
			c.t.Fatal(err)
		}
		for _, x := range list.Items {
			meta, _ := x["metadata"].(map[string]any)
			x["metadata"] = map[string]any{"name": meta["name"], "labels": meta["labels"], "annotations": meta["annotations"]}
			if spec, is := x["spec"].(map[string]any); is {
				delete(spec, "clusterIP")
				delete(spec, "clusterIPs")
			}
			path, _, _ := strings.Cut(path, "?")
			out = append(out, object{path, x})
		}
	}
	return out
}

// alone has a client of each cluster write what its gateway wrote, and returns how long that
// takes.
func (s *clusterset) alone(t *testing.T, list map[*cluster][]object) time.Duration {
	t.Helper()
	begin := time.Now()
	s.together(t, func(one *cluster) error {
		client := one.AdminClient()
		defer client.CloseIdleConnections()
		todo := make(chan object)
		var writing sync.WaitGroup
		for range 16 { // as many as a gateway has
			writing.Go(func() {
				for x := range todo {
					one.send(client, http.MethodPost, x.path, "application/json", x.body)
					if status := x.body["status"]; x.path == importsPath {
						name, _ := x.body["metadata"].(map[string]any)["name"].(string)
						one.send(client, http.MethodPatch, x.path+"/"+name+"/status", "application/merge-patch+json", map[string]any{"status": status})
					}
				}
			})
		}
		for _, x := range list[one] {
			todo <- x
		}
		close(todo)
		writing.Wait()
		return nil
	})
	return time.Since(begin)
}

// send sends a body to the API server, which must accept it.
func (c *cluster) send(client *http.Client, method, path, contentType string, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		c.t.Error(err)
		return
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.URL()+path, bytes.NewReader(raw))
	if err != nil {
		c.t.Error(err)
		return
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 {
		c.t.Errorf("%s %s: %s: %.300s %v", method, path, resp.Status, answer, err)
	}
}

// first has each cluster export one service until all have it. Then they know each other, and
// later measurements do not wait for that.
func (s *clusterset) first(t *testing.T) {
	t.Helper()
	for _, one := range s.all {
		one.apply(exports(s.exported(one)[:1]), "create", "-n", "shop", "-f", "-")
	}
	begin := time.Now()
	s.together(t, func(one *cluster) error { return seen(t, one, importsPath, len(s.all), imported) })
	t.Logf("the first exports are imported after %v", time.Since(begin).Round(10*time.Millisecond))
	for _, one := range s.all {
		one.kubectl("delete", "serviceexports", "-n", "shop", "--all")
	}
	for _, one := range s.all {
		eventually(within(t, patience), t, "they are withdrawn", func() (bool, string) {
			left := s.imports(one)
			return left == "", left
		})
	}
}

// change changes the port of one service, and withdraws another.
func (s *clusterset) change(t *testing.T) {
	t.Helper()
	name := s.exported(s.edge)[0]
	for _, port := range []int{81, 82, 83} {
		s.edge.kubectl("patch", "service", "-n", "shop", name, "--type=json", "-p", fmt.Sprintf(`[{"op":"replace","path":"/spec/ports/0/port","value":%d}]`, port))
		begin := time.Now()
		for _, one := range s.others(s.edge) {
			waitObject(one, importsPath, name, "changed", func(x v1beta1.ServiceImport) bool {
				return slices.ContainsFunc(x.Spec.Ports, func(p v1beta1.ServicePort) bool { return p.Port == int32(port) })
			})
		}
		late(t, "a change is seen elsewhere", time.Since(begin), changedWithin)
	}
	s.edge.kubectl("delete", "serviceexport", "-n", "shop", name)
	begin := time.Now()
	for _, one := range s.others(s.edge) {
		eventually(within(t, patience), t, "it is withdrawn", func() (bool, string) {
			status := one.status(importsPath + "/" + name)
			return status == http.StatusNotFound, http.StatusText(status)
		})
	}
	late(t, "an export is withdrawn elsewhere", time.Since(begin), withdrawnWithin)
	s.edge.kubectl("patch", "service", "-n", "shop", name, "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/0/port","value":80}]`)
	s.edge.apply(exports([]string{name}), "create", "-n", "shop", "-f", "-")
	s.settled(t, "it is exported again", nil)
}

// status returns the HTTP status for a path of the API server.
func (c *cluster) status(path string) int {
	c.t.Helper()
	client := c.AdminClient()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(within(c.t, patience), http.MethodGet, c.URL()+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// use requests the first and the last service of each other cluster, from a pod of each.
func (s *clusterset) use(t *testing.T) {
	t.Helper()
	for _, one := range s.all {
		for _, other := range s.others(one) {
			names := s.exported(other)
			for _, name := range []string{names[0], names[len(names)-1]} {
				for _, args := range [][]string{{"get", "http://" + name + ".shop.svc.clusterset.local/" + other.name}, {"udp", name + ".shop.svc.clusterset.local:9000", other.name}} {
					out, err := one.Kubectl(within(t, patience), "", append([]string{"exec", "-n", "shop", "server", "--", "/bin/testserver"}, args...)...)
					if err != nil || !strings.Contains(out, other.name) {
						t.Errorf("%s of %s, from %s: %v, %q, %v", name, other.name, one.name, args, out, err)
					}
				}
			}
		}
	}
}

// rest checks the gateways' requests and memory at rest.
func (s *clusterset) rest(t *testing.T, without map[*cluster]int) {
	t.Helper()
	begin, before := time.Now(), map[*cluster]int{}
	for _, one := range s.all {
		before[one] = one.requests()
	}
	with := s.memory(t)
	for _, one := range s.all {
		rate := float64(one.requests()-before[one]) / time.Since(begin).Seconds()
		more := with[one] - without[one]
		t.Logf("%s: %.2f requests a second at rest; %.1f MB, which is %.1f MB more than without services", one.name, rate, mb(without[one]+more), mb(more))
		if before[one] == 0 {
			t.Errorf("%s: the API server has counted none of the gateway's requests", one.name)
		}
		if rate > restRequests || more > moreMemory {
			t.Errorf("%s: want at most %.1f requests a second, and %.0f MB", one.name, restRequests, mb(moreMemory))
		}
	}
}

// takeover ends the active gateway of cloud, first by deleting its pod and then by killing its
// process. All services then lead to the new active one, and open connections have ended.
func (s *clusterset) takeover(t *testing.T) {
	t.Helper()
	name := s.exported(s.edge)[0]
	for _, end := range []struct {
		what  string
		do    func(pod string)
		moves bool // to another pod
	}{
		{"was deleted", func(pod string) { s.cloud.kubectl("delete", "pod", "-n", gatewayNamespace, pod, "--wait=false") }, true},
		{"was killed", func(string) { s.cloud.killGateway() }, false},
	} {
		was := s.cloud.activePod()
		held := s.cloud.held(t, name)
		begin := time.Now()
		end.do(was)
		if _, err := held.Wait(within(t, patience)); err != nil {
			t.Fatal(err)
		}
		late(t, "a connection has ended, when the active gateway "+end.what+",", time.Since(begin), overWithin)
		if out := held.Stdout(); !strings.Contains(out, "ended") {
			t.Errorf("a connection that was open: %q", out)
		}
		eventually(within(t, patience), t, "another is active", func() (bool, string) {
			next := s.cloud.activePod()
			return next != "" && (next != was || !end.moves), next
		})
		address := s.cloud.kubectl("get", "pod", "-n", gatewayNamespace, s.cloud.activePod(), "-o", "jsonpath={.status.podIP}")
		want := exportCount - len(s.exported(s.cloud))
		if err := seen(t, s.cloud, derivedSlicesPath, want, func(x discoveryv1.EndpointSlice) bool {
			return len(x.Endpoints) == 1 && x.Endpoints[0].Addresses[0] == address
		}); err != nil {
			t.Error(err)
		}
		eventually(within(t, patience), t, "a service is used", func() (bool, string) {
			out, err := s.cloud.Kubectl(within(t, clientPatience), "", "exec", "-n", "shop", "server", "--", "/bin/testserver", "get", "http://"+name+".shop.svc.clusterset.local/")
			return err == nil, fmt.Sprint(out, err)
		})
		late(t, fmt.Sprintf("%d ports lead to the gateway that is active, and one is used, when the active one %s,", 2*want, end.what), time.Since(begin), overWithin)
		s.cloud.waitRollout(release, gatewayNamespace)
	}
}

// faults adds and removes edge's exports during a fault; afterwards all must be correct.
func (s *clusterset) faults(t *testing.T) {
	t.Helper()
	names := s.exported(s.edge)
	away := func(c *cluster) func() {
		return func() {
			if err := c.StopAPIServer(); err != nil {
				t.Fatal(err)
			}
			if err := c.StartAPIServer(within(t, recoveredWithin)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, fault := range []struct {
		what string
		do   func()
	}{
		{"edge's gateway", s.edge.killGateway},
		{"cloud's gateway", s.cloud.killGateway},
		{"edge's API server", away(s.edge)},
		{"cloud's API server", away(s.cloud)},
		{"the path", func() {
			lost := s.wan.Drop("ip saddr "+cloudNATAddr, "ip daddr "+cloudNATAddr)
			<-time.After(pathLoss)
			lost.Remove()
		}},
	} {
		for _, verb := range []string{"delete", "apply"} {
			args := []string{verb, "-n", "shop", "-f", "-"}
			without := map[string]bool{}
			if verb == "delete" {
				args = append(args, "--wait=false", "--ignore-not-found")
				for _, name := range names {
					without[name] = true
				}
			}
			was, begin := s.imports(s.cloud), time.Now()
			var changing sync.WaitGroup
			changing.Go(func() { // if the API server goes away meanwhile it is repeated
				_, _ = s.edge.Kubectl(within(t, patience), exports(names), args...)
			})
			eventually(within(t, patience), t, "the change comes to cloud", func() (bool, string) {
				return s.imports(s.cloud) != was, ""
			})
			fault.do()
			changing.Wait()
			s.edge.apply(exports(names), args...)
			over := time.Now()
			s.settled(t, verb+" while "+fault.what+" is gone", without)
			t.Logf("%s of %d exports while %s is gone: done after %v, and all is as it should be %v later", verb, len(names), fault.what,
				over.Sub(begin).Round(100*time.Millisecond), time.Since(over).Round(100*time.Millisecond))
		}
	}
	s.use(t)
}

// imports returns the names of a cluster's imports.
func (s *clusterset) imports(one *cluster) string {
	return one.kubectl("get", "serviceimports", "-n", "shop", "-o", "name")
}

// settled waits until all clusters have exactly the exported services, except some.
func (s *clusterset) settled(t *testing.T, what string, without map[string]bool) {
	t.Helper()
	ctx := within(t, recoveredWithin)
	for _, one := range s.all {
		eventually(ctx, t, what+": "+one.name+" has what is exported, and nothing besides", func() (bool, string) {
			wrong := s.compare(one, without)
			return len(wrong) == 0, fmt.Sprintf("%d objects are not as they should be: %.10q", len(wrong), wrong)
		})
	}
}

// compare says which imports a cluster lacks, and which it should not have.
func (s *clusterset) compare(one *cluster, without map[string]bool) (wrong []string) {
	gateway := ""
	if active := one.activePod(); active != "" {
		gateway = one.kubectl("get", "pod", "-n", gatewayNamespace, active, "-o", "jsonpath={.status.podIP}")
	}
	own := one.kubectl("get", "pod", "-n", "shop", "server", "-o", "jsonpath={.status.podIP}")
	want := map[string]bool{}
	for _, other := range s.all {
		at := gateway
		if other == one {
			at = own
		}
		for _, name := range s.exported(other) {
			if !without[name] {
				want[name+" at "+at] = true
				want[name+" of "+other.name] = true
			}
		}
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Name   string
				Labels map[string]string
			}
			Spec struct {
				IPs []string
			}
			Status    v1beta1.ServiceImportStatus
			Endpoints []discoveryv1.Endpoint
		}
	}
	one.object(&list, "serviceimports,services,endpointslices", "-n", "shop", "-l", "app.kubernetes.io/managed-by=postern")
	services := 0
	for _, x := range list.Items {
		have := x.Kind + " " + x.Metadata.Name
		switch x.Kind {
		case "Service":
			services++
			continue
		case "ServiceImport":
			if len(x.Spec.IPs) == 1 && len(x.Status.Clusters) == 1 {
				have = x.Metadata.Name + " of " + x.Status.Clusters[0].Cluster
			}
		case "EndpointSlice":
			if len(x.Endpoints) == 1 {
				have = x.Metadata.Labels[v1beta1.LabelServiceName] + " at " + x.Endpoints[0].Addresses[0]
			}
		}
		if !want[have] {
			wrong = append(wrong, "+"+have)
		}
		delete(want, have)
	}
	if n := exportCount - len(without); services != n {
		wrong = append(wrong, fmt.Sprintf("%d derived Services, want %d", services, n))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		wrong = append(wrong, "-"+name)
	}
	return wrong
}

// gone uninstalls the gateways. Nothing that they created may be left.
func (s *clusterset) gone(t *testing.T) {
	t.Helper()
	s.together(t, func(one *cluster) error {
		_, err := one.Helm(within(t, 2*patience), one.helm, "uninstall", release, "-n", gatewayNamespace, "--wait")
		return err
	})
	for _, one := range s.all {
		eventually(within(t, recoveredWithin), t, "an uninstalled gateway leaves nothing at "+one.name, func() (bool, string) {
			left := strings.Fields(one.kubectl("get", "serviceimports,services,endpointslices", "-A", "-l", "app.kubernetes.io/managed-by=postern", "-o", "name"))
			return len(left) == 0, fmt.Sprintf("%d objects: %.10q", len(left), left)
		})
	}
}
