//go:build linux && e2e

package exposure

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	ownkube "github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/control/predict"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

// rights are the permissions that a gateway needs to know its exposure. They are in README.md,
// and the chart grants them.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: exposure, namespace: NS}
rules:
- {apiGroups: [""], resources: [services, pods], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: exposure, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: exposure}
subjects: [{kind: ServiceAccount, name: postern, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: exposure-NS, namespace: kube-public}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [cluster-info], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: exposure-NS, namespace: kube-public}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: exposure-NS}
subjects: [{kind: ServiceAccount, name: postern, namespace: NS}]
`

const nodeRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: exposure-NS}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: exposure-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: exposure-NS}
subjects: [{kind: ServiceAccount, name: postern, namespace: NS}]
`

// nodesYAML are a node that strangers can reach, a control plane node that only its own network
// can reach, and one that is not ready. Their status is written separately.
const nodesYAML = `
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {node-role.kubernetes.io/control-plane: ""}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3}}
`

const serviceYAML = `
apiVersion: v1
kind: Service
metadata: {name: postern, labels: {app.kubernetes.io/name: postern}}
spec:
  type: TYPE
  selector: {app.kubernetes.io/name: postern, postern.dev/role: active}
  ports: [{name: wireguard, protocol: UDP, port: 51820, targetPort: 51820}]
`

// world is a real API server with three nodes.
type world struct {
	cluster kubetest.Cluster
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return w.cluster.Run(t, stdin, args...)
}

func (w *world) status(t *testing.T, what, ns, patch string) {
	t.Helper()
	w.kubectl(t, "", "patch", what, "-n", ns, "--subresource=status", "--type=merge", "-p", patch)
}

// expose applies the gateway's Service with a type.
func (w *world) expose(t *testing.T, ns, serviceType string) {
	t.Helper()
	w.kubectl(t, strings.Replace(serviceYAML, "TYPE", serviceType, 1), "apply", "-n", ns, "-f", "-")
}

// account creates a namespace with a gateway's account, and connects as that account.
func (w *world) account(t *testing.T, ns string) *ownkube.Cluster {
	t.Helper()
	file := w.cluster.Bearer(t, ns, w.cluster.Gateway(t, ns))
	c, err := ownkube.ConnectContext(kubeconfig.Flags{File: file}, "postern-test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// seen are the exposures that a watcher has reported.
type seen struct {
	mu     sync.Mutex
	all    []Exposure
	signal chan struct{}
}

// follow runs a watcher until the test ends.
func follow(t *testing.T, c *ownkube.Cluster, more func(*Options)) *seen {
	t.Helper()
	s := &seen{signal: make(chan struct{}, 1)}
	o := Options{
		Cluster: c, Service: "postern", Port: 51820, Account: c.Namespace() + ":postern",
		Pods: map[string]string{"app.kubernetes.io/name": "postern", "postern.dev/role": "active"},
		OnChange: func(e Exposure) {
			s.mu.Lock()
			s.all = append(s.all, e)
			s.mu.Unlock()
			select {
			case s.signal <- struct{}{}:
			default:
			}
		},
	}
	if more != nil {
		more(&o)
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// until waits for an exposure that satisfies is.
func (s *seen) until(t *testing.T, what string, is func(Exposure) bool) Exposure {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		var last Exposure
		if n := len(s.all); n > 0 {
			last = s.all[n-1]
		}
		found := len(s.all) > 0 && is(last)
		s.mu.Unlock()
		if found {
			return last
		}
		select {
		case <-s.signal:
		case <-deadline:
			t.Fatalf("%s: the last exposure is %+v", what, last)
		}
	}
}

func codes(e Exposure) []string {
	var out []string
	for _, p := range e.Problems {
		out = append(out, string(p.Code))
	}
	return out
}

func TestExposureOfARealCluster(t *testing.T) {
	c := kubetest.Start(t)
	w := &world{cluster: c}
	w.kubectl(t, nodesYAML, "apply", "-f", "-")
	for name, patch := range map[string]string{
		"n1": `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"ExternalIP","address":"203.0.113.1"}],"conditions":[{"type":"Ready","status":"True"}]}}`,
		"n2": `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.2"}],"conditions":[{"type":"Ready","status":"True"}]}}`,
		"n3": `{"status":{"addresses":[{"type":"ExternalIP","address":"203.0.113.3"}],"conditions":[{"type":"Ready","status":"Unknown"}]}}`,
	} {
		w.kubectl(t, "", "patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
	}
	t.Run("follows the Service", w.testFollows)
	t.Run("says what may not be read", w.testRights)
	t.Run("stays in force while the API server is away", w.testOutage)
	t.Run("auth and the API server", w.testOutOfBand)
	t.Run("for a prediction", w.testRead)
}

func (w *world) testFollows(t *testing.T) {
	own := w.account(t, "follows")
	w.kubectl(t, strings.ReplaceAll(rights+"---"+nodeRights, "NS", "follows"), "apply", "-f", "-")
	s := follow(t, own, nil)
	s.until(t, "no Service", func(e Exposure) bool { return slices.Equal(codes(e), []string{"PST0422"}) })

	w.expose(t, "follows", "LoadBalancer")
	e := s.until(t, "node ports while the load balancer has no address", func(e Exposure) bool { return len(e.Endpoints) == 2 })
	port := w.kubectl(t, "", "get", "service", "postern", "-n", "follows", "-o", "jsonpath={.spec.ports[0].nodePort}")
	want := []Endpoint{
		{"203.0.113.1:" + port, SourceService, "NodePort " + port + " on node n1 (ExternalIP)"},
		{"10.0.0.2:" + port, SourceService, "NodePort " + port + " on node n2 (InternalIP, private)"},
	}
	if !slices.Equal(e.Endpoints, want) || len(e.Problems) != 0 || e.Type != "LoadBalancer" {
		t.Errorf("got %+v, want %v and no problem yet", e, want)
	}

	w.status(t, "service/postern", "follows", `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"},{"hostname":"lb.example.net"}]}}}`)
	e = s.until(t, "the load balancer's addresses", func(e Exposure) bool {
		return slices.Equal(addresses(e.Endpoints), []string{"203.0.113.9:51820", "lb.example.net:51820"})
	})
	if len(e.Problems) != 1 || e.Problems[0].Code != catalogue.ExposureMoved || !slices.Equal(e.Problems[0].Params.Was, addresses(want)) {
		t.Errorf("want a problem about the lost node ports: %+v", e.Problems)
	}

	w.expose(t, "follows", "NodePort")
	w.kubectl(t, "", "patch", "service", "postern", "-n", "follows", "-p", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	s.until(t, "Local without an active pod", func(e Exposure) bool {
		return len(e.Endpoints) == 0 && slices.Contains(codes(e), "PST0421")
	})
	w.kubectl(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"postern-0","labels":{"app.kubernetes.io/name":"postern","postern.dev/role":"active"}},
		"spec":{"nodeName":"n1","automountServiceAccountToken":false,"containers":[{"name":"c","image":"x"}]}}`, "apply", "-n", "follows", "-f", "-")
	s.until(t, "the node of the active pod", func(e Exposure) bool {
		return slices.Equal(addresses(e.Endpoints), []string{"203.0.113.1:" + port}) && !slices.Contains(codes(e), "PST0421")
	})

	w.kubectl(t, `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"front"},"spec":{"defaultBackend":{"service":{"name":"postern","port":{"number":51820}}}}}`,
		"apply", "-n", "follows", "-f", "-")
	s.until(t, "an Ingress for the gateway", func(e Exposure) bool { return slices.Contains(codes(e), "PST0424") })
	w.kubectl(t, "", "delete", "ingress", "front", "-n", "follows")
	s.until(t, "no Ingress", func(e Exposure) bool { return !slices.Contains(codes(e), "PST0424") })
}

func (w *world) testRights(t *testing.T) {
	own := w.account(t, "rights")
	w.expose(t, "rights", "NodePort")
	s := follow(t, own, nil)
	e := s.until(t, "no right at all", func(e Exposure) bool { return slices.Equal(codes(e), []string{"PST0425"}) })
	_, fix := catalogue.Render(e.Problems[0].Code, e.Problems[0].Params)
	if !strings.Contains(fix.String(), "kubectl create role postern-services -n rights --verb=get,list,watch --resource=services") || !strings.Contains(fix.String(), "--serviceaccount=rights:postern") {
		t.Errorf("the fix is %q", fix)
	}
	w.kubectl(t, strings.ReplaceAll(rights, "NS", "rights"), "apply", "-f", "-")
	e = s.until(t, "no right for nodes", func(e Exposure) bool {
		return slices.Equal(codes(e), []string{"PST0425"}) && e.Problems[0].Name == NameNodes
	})
	_, fix = catalogue.Render(e.Problems[0].Code, e.Problems[0].Params)
	if len(fix) < 1 || fix[0].Command == "" {
		t.Fatalf("the fix has no command: %+v", fix)
	}
	// The command in the fix works.
	for _, one := range strings.Split(fix[0].Command, " && ") {
		w.kubectl(t, "", strings.Fields(strings.TrimPrefix(one, "kubectl "))...)
	}
	s.until(t, "nodes", func(e Exposure) bool { return len(e.Endpoints) == 2 && len(e.Problems) == 0 })
}

func (w *world) testOutage(t *testing.T) {
	own := w.account(t, "outage")
	w.kubectl(t, strings.ReplaceAll(rights+"---"+nodeRights, "NS", "outage"), "apply", "-f", "-")
	w.expose(t, "outage", "LoadBalancer")
	w.status(t, "service/postern", "outage", `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"}]}}}`)
	s := follow(t, own, nil)
	at := func(address string) func(Exposure) bool {
		return func(e Exposure) bool { return slices.Equal(addresses(e.Endpoints), []string{address + ":51820"}) }
	}
	s.until(t, "the address", at("203.0.113.9"))
	s.mu.Lock()
	before := len(s.all)
	s.mu.Unlock()
	if err := w.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.StartAPIServer(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	w.status(t, "service/postern", "outage", `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.10"}]}}}`)
	s.until(t, "the new address", at("203.0.113.10"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.all) - before; n != 1 {
		t.Errorf("got %d changes, want one: %+v", n, s.all[before:])
	}
}

func (w *world) testOutOfBand(t *testing.T) {
	own := w.account(t, "oob")
	w.kubectl(t, strings.ReplaceAll(rights+"---"+nodeRights, "NS", "oob"), "apply", "-f", "-")
	w.expose(t, "oob", "ClusterIP")
	w.kubectl(t, "", "create", "service", "clusterip", "auth", "-n", "oob", "--tcp=443:8443")
	w.kubectl(t, `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"front","annotations":{"nginx.ingress.kubernetes.io/ssl-passthrough":"true"}},
		"spec":{"rules":[{"host":"auth.example.net","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"auth","port":{"number":443}}}}]}}]}}`,
		"apply", "-n", "oob", "-f", "-")
	s := follow(t, own, func(o *Options) { o.AuthService = "auth" })
	e := s.until(t, "auth and the API server", func(e Exposure) bool { return e.Auth.Exposure != "" && e.APIServer.Address != "" })
	if e.Auth.Exposure != predict.Ingress || e.Auth.TLS != predict.Passthrough || !slices.Equal(addresses(e.Auth.Endpoints), []string{"auth.example.net:443"}) {
		t.Errorf("auth: got %+v", e.Auth)
	}
	if want := (Endpoint{Address: "10.0.0.2:6443", From: "InternalIP of control-plane node n2 (private)"}); e.APIServer != want {
		t.Errorf("API server: got %+v, want %+v", e.APIServer, want)
	}
}

func (w *world) testRead(t *testing.T) {
	w.kubectl(t, "", "create", "namespace", "read")
	flags := kubeconfig.Flags{File: w.cluster.Kubeconfig()}
	flags.Context.Namespace = "read"
	c, err := ownkube.ConnectContext(flags, "postern-test")
	if err != nil {
		t.Fatal(err)
	}
	read := func() (predict.Exposure, []check.OwnProblem) {
		t.Helper()
		e, problems, err := Read(within(t, patience), c, ReadOptions{Name: "cloud"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
		return e, problems
	}
	if e, problems := read(); e.Gateway.Exposure != "" || len(problems) != 0 || e.APIServer.Exposure != predict.Private || e.APIServer.Address != "10.0.0.2:6443" {
		t.Errorf("without a gateway: got %+v %+v", e, problems)
	}
	w.expose(t, "read", "NodePort")
	e, problems := read()
	if e.Name != "cloud" || e.Gateway.Exposure != predict.NodePort || len(e.Gateway.Addresses) != 2 || e.Auth.Exposure != predict.ClusterIP || len(problems) != 0 {
		t.Errorf("with a NodePort: got %+v %+v", e, problems)
	}
	w.kubectl(t, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"postern","labels":{"app.kubernetes.io/name":"postern"}},
		"spec":{"serviceName":"postern","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
		"spec":{"containers":[{"name":"c","image":"x","ports":[{"protocol":"UDP","containerPort":51820,"hostPort":51820}]}]}}}}`, "apply", "-n", "read", "-f", "-")
	w.kubectl(t, "", "label", "namespace", "read", enforce+"=restricted")
	if _, problems := read(); len(problems) != 1 || problems[0].Code != catalogue.HostPortRefused || !strings.Contains(problems[0].Params.Detail, "hostPort 51820") {
		t.Errorf("a hostPort in a restricted namespace: got %+v", problems)
	}

	denied := w.account(t, "read-denied")
	if _, problems, err := Read(within(t, patience), denied, ReadOptions{}); err != nil || len(problems) != 1 || problems[0].Code != catalogue.ExposureUnknown {
		t.Errorf("without rights: got %+v %v", problems, err)
	}
}
