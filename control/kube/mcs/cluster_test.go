//go:build linux && e2e

package mcs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	services "github.com/postern-dev/postern/control/mcs"
	testkube "github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

// fake is a gateway with a given state.
type fake struct {
	mu         sync.Mutex
	exports    []services.Export
	namespaces []string
	state      services.State
	changed    chan struct{} // of state
	told       chan struct{} // of the others
}

func newFake() *fake { return &fake{changed: make(chan struct{}), told: make(chan struct{}, 1)} }

func (f *fake) SetExports(list []services.Export) { f.tell(func() { f.exports = list }) }

func (f *fake) Reserve(map[uint16]string) {}

func (f *fake) SetNamespaces(list []string) { f.tell(func() { f.namespaces = list }) }

func (f *fake) tell(set func()) {
	f.mu.Lock()
	set()
	f.mu.Unlock()
	select {
	case f.told <- struct{}{}:
	default:
	}
}

func (f *fake) State() (services.State, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.changed
}

func (f *fake) set(s services.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
	close(f.changed)
	f.changed = make(chan struct{})
}

// site is a cluster whose gateway has a controller.
type site struct {
	t       *testing.T
	cluster kubetest.Cluster
	gateway *fake
	stop    func()

	mu       sync.Mutex
	problems []check.OwnProblem
	changed  chan struct{}
}

func (s *site) kubectl(stdin string, args ...string) string {
	s.t.Helper()
	return s.cluster.Run(s.t, stdin, args...)
}

// definitions installs the kinds of the API, after a change of their text.
func definitions(t *testing.T, c kubetest.Cluster, change func(string) string) {
	t.Helper()
	for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
		c.Run(t, change(string(text)), "apply", "--server-side", "-f", "-")
	}
	c.Run(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/"+v1beta1.ServiceExportFullName, "crd/"+v1beta1.ServiceImportFullName)
}

func asItIs(text string) string { return text }

// connect connects to the cluster as its administrator.
func connect(t *testing.T, c kubetest.Cluster, token string) *kube.Cluster {
	t.Helper()
	own, err := kube.ConnectContext(kubeconfig.Flags{File: c.Bearer(t, "postern", token)}, "postern-test")
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// start runs a controller until the test ends or stop is called.
func start(t *testing.T, c kubetest.Cluster, own *kube.Cluster, gateway *fake, namespaces ...string) *site {
	t.Helper()
	s := &site{t: t, cluster: c, gateway: gateway, changed: make(chan struct{}, 1)}
	controller, err := New(Options{Cluster: own, Services: gateway, Release: "postern", ID: "here", Address: netip.MustParseAddr("10.244.0.9"), Namespaces: namespaces, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Lookup: func(ctx context.Context, _, host string) (out []netip.Addr, err error) { // as the cluster's DNS should
			part := strings.Split(host, ".")
			ips, err := c.Kubectl(ctx, "", "get", "serviceimport", "-n", part[1], part[0], "--ignore-not-found", "-o", "jsonpath={.spec.ips[*]}")
			if err == nil && ips == "" { // it was deleted a moment ago
				err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			for _, ip := range strings.Fields(ips) {
				out = append(out, netip.MustParseAddr(ip))
			}
			return out, err
		}, OnProblems: func(list []check.OwnProblem) {
			s.mu.Lock()
			s.problems = list
			s.mu.Unlock()
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); controller.Run(ctx) }()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(s.stop)
	return s
}

// exported waits until the gateway gets exports that satisfy ok.
func (s *site) exported(what string, ok func([]services.Export) bool) {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.gateway.mu.Lock()
		list := s.gateway.exports
		s.gateway.mu.Unlock()
		if ok(list) {
			return
		}
		select {
		case <-s.gateway.told:
		case <-deadline:
			s.t.Fatalf("%s: the gateway is told of %+v", what, list)
		}
	}
}

// turn makes the controller reconcile everything again, and waits until it has.
func (s *site) turn() {
	s.t.Helper()
	select { // of an earlier turn
	case <-s.gateway.told:
	default:
	}
	state, _ := s.gateway.State()
	s.gateway.set(state)
	select {
	case <-s.gateway.told:
	case <-time.After(patience):
		s.t.Fatal("the controller does not look")
	}
}

// problem waits until there is a problem with the code, or none at all if the code is empty.
func (s *site) problem(code catalogue.Code) check.OwnProblem {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		list := s.problems
		s.mu.Unlock()
		for _, p := range list {
			if p.Code == code {
				return p
			}
		}
		if code == "" && len(list) == 0 {
			return check.OwnProblem{}
		}
		select {
		case <-s.changed:
		case <-deadline:
			s.t.Fatalf("there is no problem %q: %+v", code, list)
		}
	}
}

// wait watches objects until one satisfies ok.
func wait[T any](s *site, path, what string, ok func(T) bool) T {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var found T
	if err := s.cluster.WaitFor(ctx, path, func(b []byte) bool {
		var x T
		if json.Unmarshal(b, &x) != nil || !ok(x) {
			return false
		}
		found = x
		return true
	}); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	return found
}

// none waits until there is no object of a kind in a namespace, except those with these prefixes.
func (s *site) none(kind, namespace string, but ...string) {
	s.t.Helper()
	args := []string{"get", kind, "-n", namespace, "-o", "name"}
	for deadline := time.Now().Add(patience); ; {
		left := slices.DeleteFunc(strings.Fields(s.kubectl("", args...)), func(n string) bool {
			return slices.ContainsFunc(but, func(b string) bool { return strings.Contains(n, "/"+b) })
		})
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("there are still %v in %s", left, namespace)
		}
	}
}

const (
	core      = "/api/v1/namespaces/shop/services"
	discovery = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
	exports   = "/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceexports"
	imports   = "/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports"
)

func condition(x v1beta1.ServiceExport, kind v1beta1.ServiceExportConditionType) metav1.Condition {
	if c := meta.FindStatusCondition(x.Status.Conditions, string(kind)); c != nil {
		return *c
	}
	return metav1.Condition{}
}

var web = services.Name{Namespace: "shop", Name: "web"}

func port(name string, number uint16) services.Port {
	return services.Port{Name: name, Protocol: api.TCP, Port: number}
}

// from returns an import of a service that one peer exports.
func from(peer string, spec services.Spec, endpoints ...services.Endpoint) services.Import {
	return services.Import{Name: web, Spec: spec, Clusters: []services.Cluster{{ID: peer, Endpoints: endpoints}}}
}

func listener(p services.Port, at string) services.EndpointPort {
	return services.EndpointPort{Port: p, At: netip.MustParseAddrPort(at)}
}

const exportedService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  sessionAffinity: ClientIP
  trafficDistribution: PreferClose
  ports: [{name: http, port: 80, targetPort: http}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]
endpoints:
- {addresses: [10.244.0.5], targetRef: {kind: Pod, namespace: shop, name: web-5}, conditions: {ready: true}}
- {addresses: [10.244.0.6], targetRef: {kind: Pod, namespace: shop, name: web-6}, conditions: {ready: false}}
- {addresses: [10.244.0.7], targetRef: {kind: Pod, namespace: shop, name: web-7}, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.244.0.8], conditions: {ready: true}}
`

const serviceExport = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web, namespace: shop}
spec: {exportedLabels: {tier: front}}
`

func TestServicesOfClustersAsObjects(t *testing.T) {
	c := kubetest.Start(t)
	token := c.Administrator(t)
	c.Run(t, "", "create", "namespace", "postern")
	c.Run(t, "", "create", "namespace", "shop")

	t.Run("without the kinds", func(t *testing.T) {
		s := start(t, c, connect(t, c, token), newFake(), "shop")
		s.problem(catalogue.MCSMissing)
	})
	t.Run("without one of the kinds", func(t *testing.T) {
		c.Run(t, string(crd.ServiceImportCRD), "apply", "--server-side", "-f", "-")
		c.Run(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/"+v1beta1.ServiceImportFullName)
		s := start(t, c, connect(t, c, token), newFake(), "shop")
		if p := s.problem(catalogue.MCSMissing); p.Params.Detail != exportKind.qualified() {
			t.Errorf("it is said of %s", p.Params.Detail)
		}
	})
	definitions(t, c, asItIs)
	t.Run("exports", func(t *testing.T) { testExports(t, start(t, c, connect(t, c, token), newFake())) })
	t.Run("imports", func(t *testing.T) { testImports(t, c, connect(t, c, token)) })
	t.Run("headless", func(t *testing.T) { testHeadless(t, start(t, c, connect(t, c, token), newFake(), "shop")) })
	t.Run("less", func(t *testing.T) { testLess(t, start(t, c, connect(t, c, token), newFake())) })
	t.Run("somebody else's", func(t *testing.T) { testSomebodyElses(t, start(t, c, connect(t, c, token), newFake())) })
	t.Run("many", func(t *testing.T) { testMany(t, start(t, c, connect(t, c, token), newFake())) })
	t.Run("a gateway that starts", func(t *testing.T) { testRestart(t, c, connect(t, c, token)) })
}

// The chart's rights in the named namespaces, and the policy that limits them, are enough. Other
// namespaces are treated as missing.
func TestTheChartsRightsWillDo(t *testing.T) {
	c := kubetest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	helm, err := testkube.Helm(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c.Run(t, "", "create", "namespace", "shop")
	c.Run(t, "", "create", "namespace", "blog")
	definitions(t, c, asItIs)
	if _, err := c.Helm(ctx, helm, "install", "postern", "../../../cmd/postern/deploy/chart", "-n", "postern", "--create-namespace", "--set", "name=edge",
		"--set", "mcs.enabled=true", "--set", "mcs.namespaces={shop}"); err != nil {
		t.Fatal(err)
	}
	token := c.Run(t, "", "create", "token", "-n", "postern", "postern", "--duration", "1h")
	s := start(t, c, connect(t, c, token), newFake(), "shop")
	s.kubectl(exportedService, "apply", "-f", "-")
	s.kubectl(serviceExport, "apply", "-f", "-")
	s.kubectl(strings.ReplaceAll(serviceExport, "namespace: shop", "namespace: blog"), "apply", "-f", "-")
	wait(s, exports, "it is exported", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionReady).Status == metav1.ConditionTrue
	})
	s.exported("the one that may be seen", func(list []services.Export) bool { return len(list) == 1 && list[0].Name == web })
	s.kubectl("", "delete", "service,endpointslice,serviceexport", "-n", "shop", "--all")
	testHeadless(t, s)
	s.gateway.set(services.State{Imports: []services.Import{from("east", services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{port("http", 80)}},
		services.Endpoint{Ports: []services.EndpointPort{listener(port("http", 80), "10.244.0.9:30001")}})}})
	imported := wait(s, imports, "the import", func(x v1beta1.ServiceImport) bool { return len(x.Spec.IPs) == 1 && len(x.Status.Clusters) == 1 })
	if o := imported.OwnerReferences; len(o) != 1 || o[0].Kind != "Role" {
		t.Fatalf("the import belongs to %+v, want the Role of its namespace", o)
	}
	// The right is withdrawn and granted again. The garbage collector would delete what belongs to
	// the former Role.
	role := imported.OwnerReferences[0]
	s.kubectl(s.kubectl("", "get", "role", "-n", "shop", role.Name, "-o", "json"), "replace", "--force", "-f", "-")
	s.kubectl("", "delete", "serviceimport", "-n", "shop", "web")
	for _, path := range []string{imports, core, discovery} {
		wait(s, path, "what belongs to the new Role in "+path, func(x metav1.PartialObjectMetadata) bool {
			return len(x.OwnerReferences) == 1 && x.OwnerReferences[0].Name == role.Name && x.OwnerReferences[0].UID != role.UID
		})
	}
	s.problem("")
	// Somebody changes it back each time. Who only removes something is not known.
	derived := imported.Annotations[derivedAnnotation]
	for range 3 {
		s.kubectl("", "annotate", "service", "-n", "shop", derived, annotationApplied+"-")
		wait(s, core, "it is put right", func(x metav1.PartialObjectMetadata) bool {
			return x.Name == derived && x.Annotations[annotationApplied] != ""
		})
	}
	if p := s.problem(catalogue.ObjectReverted); p.Params.Manager != "" || p.Params.Object != "Service "+derived {
		t.Errorf("somebody removes something: %+v", p.Params)
	}
	s.gateway.set(services.State{})
	s.problem("")
	s.gateway.set(services.State{Imports: []services.Import{from("east", services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{port("http", 80)}},
		services.Endpoint{Ports: []services.EndpointPort{listener(port("http", 80), "10.244.0.9:30001")}})}})
	wait(s, imports, "the import", func(x v1beta1.ServiceImport) bool { return len(x.Spec.IPs) == 1 && len(x.Status.Clusters) == 1 })
	for range 3 {
		s.kubectl("", "patch", "serviceimport", "-n", "shop", "web", "--type=merge", "--field-manager=argocd-controller", "-p", `{"spec":{"ports":[{"port":81,"protocol":"TCP"}]}}`)
		wait(s, imports, "it is put right", func(x v1beta1.ServiceImport) bool { return len(x.Spec.Ports) == 1 && x.Spec.Ports[0].Port == 80 })
	}
	if p := s.problem(catalogue.ObjectReverted); p.Params.Manager != "argocd-controller" || p.Params.Object != "ServiceImport web" || p.Params.Namespace != "shop" {
		t.Errorf("somebody changes it back: %+v", p.Params)
	}
}

// An older cluster only has v1alpha1, which has fewer fields.
func TestTheOlderVersionWillDo(t *testing.T) {
	c := kubetest.Start(t)
	token := c.Administrator(t)
	c.Run(t, "", "create", "namespace", "postern")
	c.Run(t, "", "create", "namespace", "shop")
	definitions(t, c, func(text string) string {
		head, versions, _ := strings.Cut(text, "  versions:\n")
		older, _, _ := strings.Cut(versions, "    - name: v1beta1\n")
		return head + "  versions:\n" + strings.Replace(older, "storage: false", "storage: true", 1)
	})
	s := start(t, c, connect(t, c, token), newFake(), "shop")
	s.kubectl(exportedService, "apply", "-f", "-")
	s.kubectl(strings.ReplaceAll(serviceExport, "v1beta1", "v1alpha1"), "apply", "-f", "-")
	s.exported("an export", func(list []services.Export) bool { return len(list) == 1 })
	s.gateway.set(services.State{Imports: []services.Import{from("east", services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{port("http", 80)}, TrafficDistribution: "PreferClose"},
		services.Endpoint{Ports: []services.EndpointPort{listener(port("http", 80), "10.244.0.9:30001")}})}})
	older := func(path string) string { return strings.ReplaceAll(path, "v1beta1", "v1alpha1") }
	wait(s, older(exports), "the export is valid", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionReady).Status == metav1.ConditionTrue
	})
	wait(s, older(imports), "the import has an address and its clusters", func(x v1beta1.ServiceImport) bool {
		return len(x.Spec.IPs) == 1 && reflect.DeepEqual(x.Status.Clusters, []v1beta1.ClusterStatus{{Cluster: "east"}})
	})
	s.problem("")
}

func testExports(t *testing.T, s *site) {
	s.kubectl(serviceExport, "apply", "-f", "-")
	wait(s, exports, "there is no service", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionValid).Reason == string(v1beta1.ServiceExportReasonNoService)
	})
	s.kubectl(exportedService, "apply", "-f", "-")
	s.exported("the service", func(list []services.Export) bool { return len(list) == 1 && len(list[0].Backends) == 3 })
	s.gateway.mu.Lock()
	got := s.gateway.exports[0]
	if !slices.Contains(s.gateway.namespaces, "shop") {
		t.Errorf("the gateway is told of the namespaces %v", s.gateway.namespaces)
	}
	s.gateway.mu.Unlock()
	ports := map[string]uint16{"http": 8080, "dns": 53}
	want := services.Export{
		Name: web, UID: got.UID, Created: got.Created,
		Spec: services.Spec{
			Type: services.ClusterSetIP, Ports: []services.Port{{Name: "dns", Protocol: api.UDP, Port: 53}, port("http", 80)},
			Affinity: services.Affinity{ClientIP: true, Timeout: 3 * time.Hour}, InternalTrafficPolicy: "Cluster", TrafficDistribution: "PreferClose",
			Labels: map[string]string{"tier": "front"},
		},
		Backends: []services.Backend{
			{Addr: netip.MustParseAddr("10.244.0.5"), Ready: true, Ports: ports},
			{Addr: netip.MustParseAddr("10.244.0.6"), Ports: ports},
			{Addr: netip.MustParseAddr("10.244.0.7"), Ports: ports},
		},
	}
	if !reflect.DeepEqual(got, want) || got.UID == "" || got.Created.IsZero() {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	wait(s, exports, "it is exported", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionValid).Status == metav1.ConditionTrue &&
			condition(x, v1beta1.ServiceExportConditionReady).Reason == string(v1beta1.ServiceExportReasonExported) &&
			condition(x, v1beta1.ServiceExportConditionConflict).Reason == string(v1beta1.ServiceExportReasonNoConflicts)
	})
	s.gateway.set(services.State{
		Conflicts: []services.Conflict{{Name: web, Reason: "PortConflict", Message: "east has port 81"}, {Name: web, Reason: "TypeConflict", Message: "east is Headless"}},
		Problems:  []services.Problem{{Name: web, Code: catalogue.TotalFlowLimit, Detail: "no port is left"}},
	})
	wait(s, exports, "it is in conflict", func(x v1beta1.ServiceExport) bool {
		conflict, ready := condition(x, v1beta1.ServiceExportConditionConflict), condition(x, v1beta1.ServiceExportConditionReady)
		return conflict.Status == metav1.ConditionTrue && conflict.Reason == "PortConflict,TypeConflict" && strings.Contains(conflict.Message, "east is Headless") &&
			ready.Status == metav1.ConditionFalse && ready.Message == string(catalogue.TotalFlowLimit)+": no port is left"
	})

	s.kubectl("", "patch", "service", "-n", "shop", "web", "--type=merge", "-p", `{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":"","clusterIPs":null,"internalTrafficPolicy":null}}`)
	s.exported("nothing, of type ExternalName", func(list []services.Export) bool { return len(list) == 0 })
	wait(s, exports, "its type is refused", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionValid).Reason == string(v1beta1.ServiceExportReasonInvalidServiceType)
	})
	s.kubectl("", "delete", "service,endpointslice,serviceexport", "-n", "shop", "--all")
}

func testImports(t *testing.T, c kubetest.Cluster, own *kube.Cluster) {
	c.Run(t, "", "create", "clusterrole", "postern-postern-mcs", "--verb=get", "--resource=pods")
	s := start(t, c, own, newFake())
	s.kubectl(exportedService, "apply", "-f", "-")
	s.kubectl(serviceExport, "apply", "-f", "-")
	s.exported("the service", func(list []services.Export) bool { return len(list) == 1 && len(list[0].Backends) == 3 })
	http := port("http", 80)
	spec := services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{http, port("more", 81)}, Affinity: services.Affinity{ClientIP: true, Timeout: 10 * time.Second},
		InternalTrafficPolicy: "Cluster", Labels: map[string]string{"tier": "front", labelManagedBy: "somebody"}, Annotations: map[string]string{"note": "1"}}
	i := from("east", spec, services.Endpoint{Ports: []services.EndpointPort{listener(http, "10.244.0.9:30001"), listener(port("more", 8181), "10.244.0.9:30002")}})
	i.Own = true
	s.gateway.set(services.State{Imports: []services.Import{i, {Name: services.Name{Namespace: "nowhere", Name: "web"}, Spec: spec}}})

	imported := wait(s, imports, "the import is whole", func(x v1beta1.ServiceImport) bool {
		return len(x.Spec.IPs) == 1 && reflect.DeepEqual(x.Status.Clusters, []v1beta1.ClusterStatus{{Cluster: "east"}, {Cluster: "here"}})
	})
	derived := wait(s, core, "a derived service", func(x corev1.Service) bool { return strings.HasPrefix(x.Name, derivedPrefix) })
	seconds, policy := int32(10), corev1.ServiceInternalTrafficPolicyCluster
	want := v1beta1.ServiceImportSpec{
		Type: v1beta1.ClusterSetIP, IPs: derived.Spec.ClusterIPs, IPFamilies: derived.Spec.IPFamilies, SessionAffinity: corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}, InternalTrafficPolicy: &policy,
		Ports: []v1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "more", Protocol: "TCP", Port: 81}},
	}
	if !reflect.DeepEqual(imported.Spec, want) {
		t.Errorf("the import is %+v, want %+v", imported.Spec, want)
	}
	if imported.Labels["tier"] != "front" || imported.Labels[labelManagedBy] != program || imported.Annotations["note"] != "1" || imported.Annotations[derivedAnnotation] != derived.Name {
		t.Errorf("its labels are %v, its annotations %v", imported.Labels, imported.Annotations)
	}
	if len(derived.Spec.Selector) > 0 || derived.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || len(derived.Spec.Ports) != 2 {
		t.Errorf("the derived service is %+v", derived.Spec)
	}
	for cluster, at := range map[string]struct {
		address string
		port    int32
	}{"east": {"10.244.0.9", 30001}, "here": {"10.244.0.5", 8080}} {
		slice := wait(s, discovery, "the endpoints of "+cluster, func(x discoveryv1.EndpointSlice) bool { return x.Labels[v1beta1.LabelSourceCluster] == cluster })
		if len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != at.address || len(slice.Ports) != 1 || *slice.Ports[0].Port != at.port {
			t.Errorf("the endpoints of %s are %+v with %+v", cluster, slice.Endpoints, slice.Ports)
		}
		if slice.Labels[v1beta1.LabelServiceName] != "web" || slice.Labels[discoveryv1.LabelServiceName] != derived.Name || slice.Labels[discoveryv1.LabelManagedBy] != program {
			t.Errorf("the labels of the endpoints of %s are %v", cluster, slice.Labels)
		}
		if len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].Kind != "ClusterRole" {
			t.Errorf("the endpoints of %s belong to %+v, want the ClusterRole that gives the right", cluster, slice.OwnerReferences)
		}
	}

	// At rest nothing is written.
	versions := func() string {
		return s.kubectl("", "get", "serviceimports,services,endpointslices,serviceexports", "-n", "shop", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
	}
	before := versions()
	for range 3 {
		s.turn()
	}
	if after := versions(); after != before {
		t.Errorf("objects are written at rest: versions %s, then %s", before, after)
	}

	// Changes by others are reverted, and their additions are kept.
	s.kubectl("", "label", "serviceimport", "-n", "shop", "web", "tier=back", "other=1", "--overwrite")
	wait(s, imports, "the label is as it was", func(x v1beta1.ServiceImport) bool { return x.Labels["tier"] == "front" && x.Labels["other"] == "1" })

	// A change is one request per object, and what is no longer exported is deleted.
	i.Spec.Labels, i.Clusters[0].Endpoints[0].Ports[0].At = nil, netip.MustParseAddrPort("10.244.0.10:30001")
	s.gateway.set(services.State{Imports: []services.Import{i}})
	wait(s, imports, "the label is not exported any more", func(x v1beta1.ServiceImport) bool {
		_, still := x.Labels["tier"]
		return !still && x.Spec.IPs[0] == derived.Spec.ClusterIP
	})
	wait(s, discovery, "the listener has moved", func(x discoveryv1.EndpointSlice) bool {
		return x.Labels[v1beta1.LabelSourceCluster] == "east" && x.Endpoints[0].Addresses[0] == "10.244.0.10"
	})
	s.problem("")
	s.gateway.set(services.State{})
	s.none("serviceimport", "shop")
	s.none("service", "shop", "web")
	s.none("endpointslice", "shop", "web")
	s.kubectl("", "delete", "service,endpointslice,serviceexport", "-n", "shop", "--all")
}

// testLess: in each kind of object, what is no longer wanted is removed, and what others have added
// stays.
func testLess(t *testing.T, s *site) {
	s.kubectl(exportedService, "apply", "-f", "-")
	s.kubectl(serviceExport, "apply", "-f", "-")
	s.exported("the service", func(list []services.Export) bool { return len(list) == 1 && len(list[0].Backends) == 3 })
	http := port("http", 80)
	as := http
	as.AppProtocol = "kubernetes.io/h2c"
	i := from("east", services.Spec{
		Type: services.ClusterSetIP, Ports: []services.Port{as, port("more", 81)}, Affinity: services.Affinity{ClientIP: true, Timeout: 10 * time.Second},
		InternalTrafficPolicy: "Cluster", TrafficDistribution: "PreferClose", Labels: map[string]string{"tier": "front"}, Annotations: map[string]string{"note": "1"},
	}, services.Endpoint{Ports: []services.EndpointPort{listener(as, "10.244.0.9:30001"), listener(port("more", 81), "10.244.0.9:30002")}})
	i.Clusters = append(i.Clusters, services.Cluster{ID: "west", Endpoints: i.Clusters[0].Endpoints})
	s.gateway.set(services.State{Imports: []services.Import{i}, Conflicts: []services.Conflict{{Name: web, Reason: "PortConflict", Message: "east has port 81"}}})
	imported := wait(s, imports, "the import is whole", func(x v1beta1.ServiceImport) bool {
		return len(x.Spec.IPs) == 1 && len(x.Spec.Ports) == 2 && x.Spec.TrafficDistribution != nil && x.Spec.SessionAffinityConfig != nil && len(x.Status.Clusters) == 2
	})
	wait(s, core, "the derived Service is whole", func(x corev1.Service) bool {
		return strings.HasPrefix(x.Name, derivedPrefix) && len(x.Spec.Ports) == 2 && x.Spec.Ports[0].AppProtocol != nil && x.Spec.SessionAffinityConfig != nil
	})
	for _, cluster := range []string{"east", "west"} {
		wait(s, discovery, "endpoints", func(x discoveryv1.EndpointSlice) bool {
			return x.Labels[v1beta1.LabelSourceCluster] == cluster && len(x.Ports) == 2 && x.Ports[0].AppProtocol != nil
		})
	}
	wait(s, exports, "there is a conflict", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionConflict).Message == "east has port 81"
	})
	s.kubectl("", "annotate", "serviceimport", "-n", "shop", "web", "theirs=1")

	i.Spec = services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{http}}
	i.Clusters = i.Clusters[:1]
	i.Clusters[0].Endpoints = []services.Endpoint{{Ports: []services.EndpointPort{listener(http, "10.244.0.9:30001")}}}
	s.gateway.set(services.State{Imports: []services.Import{i}, Conflicts: []services.Conflict{{Name: web, Reason: "PortConflict"}}})
	want := v1beta1.ServiceImportSpec{
		Type: v1beta1.ClusterSetIP, IPs: imported.Spec.IPs, IPFamilies: imported.Spec.IPFamilies, SessionAffinity: corev1.ServiceAffinityNone,
		Ports: []v1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
	}
	wait(s, imports, "the import has less", func(x v1beta1.ServiceImport) bool {
		_, label := x.Labels["tier"]
		_, note := x.Annotations["note"]
		return reflect.DeepEqual(x.Spec, want) && !label && !note && x.Annotations["theirs"] == "1" && reflect.DeepEqual(x.Status.Clusters, []v1beta1.ClusterStatus{{Cluster: "east"}})
	})
	wait(s, core, "the derived Service has less", func(x corev1.Service) bool {
		return strings.HasPrefix(x.Name, derivedPrefix) && len(x.Spec.Ports) == 1 && x.Spec.Ports[0].AppProtocol == nil &&
			x.Spec.SessionAffinity == corev1.ServiceAffinityNone && x.Spec.SessionAffinityConfig == nil
	})
	wait(s, discovery, "the endpoints have less", func(x discoveryv1.EndpointSlice) bool {
		return x.Labels[v1beta1.LabelSourceCluster] == "east" && len(x.Ports) == 1 && x.Ports[0].AppProtocol == nil
	})
	wait(s, exports, "the conflict has no message", func(x v1beta1.ServiceExport) bool {
		c := condition(x, v1beta1.ServiceExportConditionConflict)
		return c.Status == metav1.ConditionTrue && c.Message == ""
	})
	s.kubectl("", "patch", "serviceexport", "-n", "shop", "web", "--subresource=status", "--type=json", "-p",
		`[{"op":"add","path":"/status/conditions/-","value":{"type":"Synced","status":"True","reason":"Theirs","message":"theirs","lastTransitionTime":"2026-01-02T03:04:05Z"}}]`)
	s.kubectl("", "delete", "service", "-n", "shop", "web")
	wait(s, exports, "whether there is a conflict is not said any more", func(x v1beta1.ServiceExport) bool {
		return condition(x, v1beta1.ServiceExportConditionValid).Status == metav1.ConditionFalse && len(x.Status.Conditions) == 3 && condition(x, "Synced").Message == "theirs"
	})
	s.problem("")
	s.gateway.set(services.State{})
	for _, kind := range []string{"serviceimport", "service", "endpointslice"} {
		s.none(kind, "shop", "web")
	}
	s.kubectl("", "delete", "endpointslice,serviceexport", "-n", "shop", "--all")
}

func testHeadless(t *testing.T, s *site) {
	sql := port("sql", 5432)
	i := from("east", services.Spec{Type: services.Headless, Ports: []services.Port{sql}},
		services.Endpoint{Hostname: "db-0", Ports: []services.EndpointPort{listener(sql, "10.244.0.9:30001")}},
		services.Endpoint{Hostname: "db-1", Ports: []services.EndpointPort{listener(sql, "10.244.0.9:30002")}})
	s.gateway.set(services.State{Imports: []services.Import{i}})
	slice := wait(s, discovery, "both backends, as DNS reads them", func(x discoveryv1.EndpointSlice) bool {
		return x.Labels[v1beta1.LabelServiceName] == "web" && x.Labels[v1beta1.LabelSourceCluster] == "east" && len(x.Endpoints) == 2
	})
	if *slice.Ports[0].Port != 5432 || slice.Labels[discoveryv1.LabelServiceName] != "" {
		t.Errorf("it has the ports %+v and the labels %v", slice.Ports, slice.Labels)
	}
	for n, e := range slice.Endpoints {
		if want := fmt.Sprintf("db-%d", n); e.Hostname == nil || *e.Hostname != want {
			t.Errorf("the hostname of %v is %v, want %s", e.Addresses, e.Hostname, want)
		}
		stands := wait(s, core, "the service of a backend", func(x corev1.Service) bool { return x.Spec.ClusterIP == e.Addresses[0] })
		wait(s, discovery, "its listener", func(x discoveryv1.EndpointSlice) bool {
			return x.Labels[discoveryv1.LabelServiceName] == stands.Name && x.Labels[v1beta1.LabelServiceName] == "" && *x.Ports[0].Port == int32(30001+n)
		})
	}
	wait(s, imports, "no address of its own", func(x v1beta1.ServiceImport) bool {
		return x.Spec.Type == v1beta1.Headless && len(x.Spec.IPs) == 0 && reflect.DeepEqual(x.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol})
	})
	i.Clusters[0].Endpoints = i.Clusters[0].Endpoints[:1]
	s.gateway.set(services.State{Imports: []services.Import{i}})
	wait(s, discovery, "one backend is left", func(x discoveryv1.EndpointSlice) bool { return x.Name == slice.Name && len(x.Endpoints) == 1 })
	s.gateway.set(services.State{})
	for _, kind := range []string{"serviceimport", "service", "endpointslice"} {
		s.none(kind, "shop")
	}
}

func testSomebodyElses(t *testing.T, s *site) {
	s.kubectl(`{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceImport","metadata":{"name":"web","namespace":"shop"},"spec":{"type":"Headless","ports":[]}}`, "apply", "-f", "-")
	http := port("http", 80)
	s.gateway.set(services.State{Imports: []services.Import{from("east", services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{http}},
		services.Endpoint{Ports: []services.EndpointPort{listener(http, "10.244.0.9:30001")}})}})
	if p := s.problem(catalogue.NameTaken); p.Params.Namespace != "shop" || p.Params.Object != "ServiceImport web" {
		t.Errorf("it is said of %s in %s", p.Params.Object, p.Params.Namespace)
	}
	var x v1beta1.ServiceImport
	if err := json.Unmarshal([]byte(s.kubectl("", "get", "serviceimport", "-n", "shop", "web", "-o", "json")), &x); err != nil || x.Spec.Type != v1beta1.Headless || len(x.Labels) > 0 {
		t.Errorf("it was changed: %+v %v", x, err)
	}
	for _, kind := range []string{"service", "endpointslice"} {
		s.none(kind, "shop")
	}
	s.kubectl("", "delete", "serviceimport", "-n", "shop", "web")
	s.problem("")
	wait(s, imports, "ours", func(x v1beta1.ServiceImport) bool { return x.Spec.Type == v1beta1.ClusterSetIP })
	s.gateway.set(services.State{})
	s.none("serviceimport", "shop")
}

// A starting gateway has not heard its peers yet. Another address would break clients that have
// resolved the name.
func testRestart(t *testing.T, c kubetest.Cluster, own *kube.Cluster) {
	http := port("http", 80)
	east := from("east", services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{http}}, services.Endpoint{Ports: []services.EndpointPort{listener(http, "10.244.0.9:30001")}})
	west := east
	west.Name, west.Clusters = services.Name{Namespace: "shop", Name: "blog"}, []services.Cluster{{ID: "west", Endpoints: east.Clusters[0].Endpoints}}
	sql := port("sql", 5432)
	backend := func(at string) []services.Endpoint {
		return []services.Endpoint{{Hostname: "db-0", Ports: []services.EndpointPort{listener(sql, at)}}}
	}
	each := services.Import{Name: services.Name{Namespace: "shop", Name: "each"}, Spec: services.Spec{Type: services.Headless, Ports: []services.Port{sql}},
		Clusters: []services.Cluster{{ID: "east", Endpoints: backend("10.244.0.9:30003")}, {ID: "west", Endpoints: backend("10.244.0.9:30004")}}}
	s := start(t, c, own, newFake())
	s.gateway.set(services.State{Imports: []services.Import{east, west, each}})
	for name, clusters := range map[string]int{"web": 1, "blog": 1, "each": 2} {
		wait(s, imports, "the import of "+name, func(x v1beta1.ServiceImport) bool {
			return x.Name == name && len(x.Status.Clusters) == clusters && (name != "each" || len(x.Spec.IPFamilies) == 1)
		})
	}
	web := wait(s, imports, "the address", func(x v1beta1.ServiceImport) bool { return x.Name == "web" })
	s.stop()

	next := newFake()
	before := s.kubectl("", "get", "service,endpointslice", "-n", "shop", "-o", "name")
	each.Clusters = each.Clusters[1:]
	next.set(services.State{Imports: []services.Import{each}, Awaited: []string{"east"}})
	s = start(t, c, own, next)
	wait(s, discovery, "the endpoints of east", func(x discoveryv1.EndpointSlice) bool { return x.Labels[v1beta1.LabelSourceCluster] == "east" })
	wait(s, imports, "each of west alone", func(x v1beta1.ServiceImport) bool { return x.Name == "each" && len(x.Status.Clusters) == 1 })
	s.none("serviceimport", "shop", "web", "each")
	for range 3 {
		s.turn()
	}
	after := s.kubectl("", "get", "service,endpointslice", "-n", "shop", "-o", "name")
	for _, n := range strings.Fields(before) {
		if blog := derivedName(west.Name); !strings.Contains(n, blog) && !strings.Contains(after, n) {
			t.Errorf("%s is gone", n)
		}
	}
	s.gateway.set(services.State{Imports: []services.Import{east}})
	wait(s, imports, "the same address", func(x v1beta1.ServiceImport) bool { return x.Name == "web" && reflect.DeepEqual(x.Spec, web.Spec) })
	wait(s, discovery, "its listener again", func(x discoveryv1.EndpointSlice) bool {
		return x.Labels[v1beta1.LabelServiceName] == "web" && len(x.Endpoints) == 1
	})
	for _, kind := range []string{"service", "endpointslice"} {
		s.none(kind, "shop", derivedName(east.Name))
	}
	s.gateway.set(services.State{})
	s.none("serviceimport", "shop")
	s.none("endpointslice", "shop")
}

// many is the number of services that exist at once.
const many = 500

// testMany: many services are imported, and lead to another replica when it takes over. How soon
// depends on the machine, and is logged.
func testMany(t *testing.T, s *site) {
	http := port("http", 80)
	state := func(gateway string) (out services.State) {
		for n := range many {
			i := from("east", services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{http}},
				services.Endpoint{Ports: []services.EndpointPort{listener(http, fmt.Sprintf("%s:%d", gateway, 20000+n))}})
			i.Name.Name = fmt.Sprintf("web-%03d", n)
			out.Imports = append(out.Imports, i)
		}
		return out
	}
	all := func(what, path string, ok func(json.RawMessage) bool) {
		t.Helper()
		begin, done := time.Now(), map[string]bool{}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := s.cluster.WaitFor(ctx, path, func(b []byte) bool {
			var x metav1.PartialObjectMetadata
			if json.Unmarshal(b, &x) == nil && ok(b) {
				done[x.Name] = true
			}
			return len(done) == many
		}); err != nil {
			t.Fatalf("%s: %d of %d: %v", what, len(done), many, err)
		}
		t.Logf("%s: %v", what, time.Since(begin).Round(10*time.Millisecond))
	}
	s.gateway.set(state("10.244.0.9"))
	all("all are imported", imports, func(b json.RawMessage) bool {
		var x v1beta1.ServiceImport
		return json.Unmarshal(b, &x) == nil && len(x.Spec.IPs) == 1 && len(x.Status.Clusters) == 1
	})
	s.gateway.set(state("10.244.0.10"))
	all("all lead to another replica", discovery, func(b json.RawMessage) bool {
		var x discoveryv1.EndpointSlice
		return json.Unmarshal(b, &x) == nil && len(x.Endpoints) == 1 && x.Endpoints[0].Addresses[0] == "10.244.0.10"
	})
	s.problem("")
	s.gateway.set(services.State{})
	for _, kind := range []string{"serviceimport", "service", "endpointslice"} {
		s.none(kind, "shop")
	}
}
