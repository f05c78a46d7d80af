//go:build linux && e2e

package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	ownkube "github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/guard/guardtest"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

// rights are the permissions that a gateway needs here. They are in README.md, and the chart
// grants them.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: access, namespace: NS}
rules:
- {apiGroups: [""], resources: [services], verbs: [get, list, create, patch, delete]}
- {apiGroups: [""], resources: [secrets], verbs: [get, list, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: access, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: access}
subjects: [{kind: ServiceAccount, name: postern, namespace: NS}]
`

const policyRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: access-policies, namespace: NS}
rules:
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: access-policies, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: access-policies}
subjects: [{kind: ServiceAccount, name: postern, namespace: NS}]
`

// world is a real API server.
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

func (w *world) apply(t *testing.T, ns, manifest string) {
	t.Helper()
	w.kubectl(t, strings.ReplaceAll(manifest, "NS", ns), "apply", "-f", "-")
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

// site is a running keeper.
type site struct {
	*world
	ns       string
	gateway  *gateway
	keeper   *Keeper
	stop     func()
	mu       sync.Mutex
	problems []check.OwnProblem
}

// keep runs a keeper that checks every second, until the test ends.
func (w *world) keep(t *testing.T, own *ownkube.Cluster, g *gateway, owner metav1.OwnerReference, grace time.Duration) *site {
	t.Helper()
	s := &site{world: w, ns: own.Namespace(), gateway: g}
	k, err := NewKeeper(Options{
		Cluster: own, Gateway: g, Release: "postern", Port: 51820, Owner: owner, Account: own.Namespace() + ":postern",
		Selector: map[string]string{"app.kubernetes.io/name": "postern", "app.kubernetes.io/instance": "postern", "postern.dev/role": "active"},
		Pods:     map[string]string{"app.kubernetes.io/name": "postern", "app.kubernetes.io/instance": "postern"},
		From:     []string{"tenant"},
		OnProblems: func(list []check.OwnProblem) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.problems = list
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	k.every, k.grace = time.Second, grace
	s.keeper = k
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	s.stop = func() { cancel(); <-done }
	t.Cleanup(s.stop)
	return s
}

// change changes the gateway and notifies the keeper.
func (s *site) change(f func(g *gateway)) {
	s.gateway.mu.Lock()
	f(s.gateway)
	s.gateway.mu.Unlock()
	s.keeper.Changed()
}

// until runs kubectl until its output is as wanted.
func (s *site) until(t *testing.T, want string, args ...string) {
	t.Helper()
	ctx := within(t, patience)
	args = append([]string{"get", "-n", s.ns}, args...)
	for {
		got, err := s.cluster.Kubectl(ctx, "", args...)
		if err == nil && strings.TrimSpace(got) == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%v: got %q %v, want %q", args, got, err, want)
		}
	}
}

// untilCodes waits for problems.
func (s *site) untilCodes(t *testing.T, want string) {
	t.Helper()
	ctx := within(t, patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		var got []string
		for _, p := range s.problems {
			got = append(got, string(p.Code)+" "+p.Params.Object+p.Params.Resource)
		}
		s.mu.Unlock()
		if strings.Join(got, ", ") == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("problems: got %q, want %q", got, want)
		}
	}
}

const (
	jsonpath = "-o=jsonpath="
	ports    = jsonpath + "{range .spec.ports[*]}{.name} {.port} {.targetPort} {.protocol},{end}"
	tokenOf  = jsonpath + "{.data.token}"
)

func TestPodsUsePeersOfARealCluster(t *testing.T) {
	c := kubetest.Start(t)
	w := &world{cluster: c}
	guardtest.Install(t, c.Cluster)
	t.Run("objects come and go with peers", w.testKeeper)
	t.Run("what is somebody else's stays", w.testForeign)
	t.Run("a gateway that takes over deletes nothing at once", w.testTakeOver)
	t.Run("rights", w.testRights)
	t.Run("who may connect", w.testGuard)
}

func (w *world) testKeeper(t *testing.T) {
	own := w.account(t, "keeper")
	w.apply(t, "keeper", rights+"---"+policyRights)
	w.kubectl(t, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"postern"},"spec":{"serviceName":"postern","selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`, "apply", "-n", "keeper", "-f", "-")
	uid := w.kubectl(t, "", "get", "statefulset", "postern", "-n", "keeper", jsonpath+"{.metadata.uid}")
	token := w.kubectl(t, "", "create", "token", "-n", "keeper", "postern")
	ca, err := os.ReadFile(w.cluster.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{
		peers:       []api.PeerStatus{offering("cloud")},
		kubeconfigs: map[string]api.Kubeconfig{"cloud": {Peer: "cloud", ServerName: kube.ServerName, CAData: string(ca)}},
		ports:       map[string]uint16{"registry": 5000},
	}
	s := w.keep(t, own, g, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "postern", UID: types.UID(uid)}, 0)
	s.until(t, "apiserver 6443 41000 TCP,registry 5000 41001 TCP,", "service/postern-cloud", ports)
	s.until(t, `{"app.kubernetes.io/instance":"postern","app.kubernetes.io/name":"postern","postern.dev/role":"active"}`, "service/postern-cloud", jsonpath+"{.spec.selector}")
	s.until(t, "cloud postern StatefulSet/"+uid, "service/postern-cloud",
		jsonpath+`{.metadata.labels.postern\.dev/peer} {.metadata.labels.app\.kubernetes\.io/instance} {.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].uid}`)
	s.until(t, `allow 41000 41001 UDP 51820`, "networkpolicy/postern-cloud",
		jsonpath+`{.spec.ingress[0].from[0].podSelector.matchLabels.postern\.dev/peer-cloud} {.spec.ingress[0].ports[*].port} {.spec.ingress[1].ports[0].protocol} {.spec.ingress[1].ports[0].port}`)

	s.until(t, `kubernetes.io/metadata.name In ["keeper","tenant"]`, "networkpolicy/postern-cloud",
		jsonpath+`{range .spec.ingress[0].from[0].namespaceSelector.matchExpressions[*]}{.key} {.operator} {.values}{end}`)

	// The Secret appears with the identity, and works.
	s.change(func(g *gateway) { g.credentials = map[string]api.Credential{"cloud": {Token: token}} })
	s.until(t, base64.StdEncoding.EncodeToString([]byte(token)), "secret/postern-cloud-kubeconfig", tokenOf)
	dir := s.mounted(t, "postern-cloud-kubeconfig")
	who := w.kubectl(t, "", "--kubeconfig", filepath.Join(dir, "kubeconfig"), "--server", w.cluster.URL(), "auth", "whoami", jsonpath+"{.status.userInfo.username}")
	if who != "system:serviceaccount:keeper:postern" {
		t.Errorf("with the kubeconfig of the Secret we are %q", who)
	}

	// What others add is kept when it is renewed.
	w.kubectl(t, "", "annotate", "secret", "postern-cloud-kubeconfig", "-n", "keeper", "mine=1")
	s.change(func(g *gateway) { g.credentials["cloud"] = api.Credential{ClientCertificate: "cert", ClientKey: "key"} })
	s.until(t, "1 "+base64.StdEncoding.EncodeToString([]byte("cert")), "secret/postern-cloud-kubeconfig", jsonpath+`{.metadata.annotations.mine} {.data.tls\.crt}{.data.token}`)
	// While the identity cannot be obtained the last one stays.
	s.change(func(g *gateway) { delete(g.credentials, "cloud") })

	// Changes by others are reverted, and deleted objects are created again.
	w.kubectl(t, "", "patch", "service", "postern-cloud", "-n", "keeper", "-p", `{"spec":{"selector":{"postern.dev/role":"mine"}}}`)
	s.until(t, "active", "service/postern-cloud", jsonpath+`{.spec.selector.postern\.dev/role}`)
	w.kubectl(t, "", "delete", "networkpolicy", "postern-cloud", "-n", "keeper")
	s.until(t, "networkpolicy.networking.k8s.io/postern-cloud", "networkpolicy/postern-cloud", "-o=name")

	// Another port, and one service less.
	s.change(func(g *gateway) {
		g.peers[0].Offers = []string{"apiServer", "auth"}
		g.peers[0].Local = []api.Local{{Service: "apiServer", Address: "10.244.0.5:42000"}}
	})
	s.until(t, "apiserver 6443 42000 TCP,", "service/postern-cloud", ports)
	s.until(t, base64.StdEncoding.EncodeToString([]byte("cert")), "secret/postern-cloud-kubeconfig", jsonpath+`{.data.tls\.crt}`)

	// An administrator's additions to a Service are kept, and do not prevent its renewal.
	w.kubectl(t, "", "patch", "service", "postern-cloud", "-n", "keeper", "-p", `{"spec":{"externalIPs":["192.0.2.1"]},"metadata":{"annotations":{"mine":"1"}}}`)
	s.change(func(g *gateway) { g.peers[0].Local = []api.Local{{Service: "apiServer", Address: "10.244.0.5:43000"}} })
	s.until(t, "apiserver 6443 43000 TCP,", "service/postern-cloud", ports)

	s.change(func(g *gateway) { g.peers = nil })
	s.until(t, "", "service,secret,networkpolicy", "-l", LabelPeer, "-o=name")
	s.untilCodes(t, "")
}

// mounted writes a Secret to a folder as the kubelet would.
func (s *site) mounted(t *testing.T, name string) string {
	t.Helper()
	var secret struct{ Data map[string][]byte }
	if err := json.Unmarshal([]byte(s.kubectl(t, "", "get", "secret", name, "-n", s.ns, "-o=json")), &secret); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for k, v := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, k), v, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (w *world) testForeign(t *testing.T) {
	own := w.account(t, "foreign")
	w.apply(t, "foreign", rights+"---"+policyRights)
	w.kubectl(t, "", "create", "service", "clusterip", "postern-cloud", "-n", "foreign", "--tcp=80:80")
	s := w.keep(t, own, &gateway{peers: []api.PeerStatus{offering("cloud")}, ports: map[string]uint16{"registry": 5000}}, metav1.OwnerReference{}, 0)
	s.untilCodes(t, "PST0739 Service postern-cloud")
	s.until(t, "networkpolicy.networking.k8s.io/postern-cloud", "networkpolicy/postern-cloud", "-o=name")
	s.change(func(g *gateway) { g.peers = nil })
	s.until(t, "", "networkpolicy", "-o=name")
	s.until(t, "80-80 80 80 TCP,", "service/postern-cloud", ports)
	s.untilCodes(t, "")
}

func (w *world) testTakeOver(t *testing.T) {
	own := w.account(t, "takeover")
	w.apply(t, "takeover", rights+"---"+policyRights)
	g := &gateway{peers: []api.PeerStatus{offering("cloud")}, ports: map[string]uint16{"registry": 5000}}
	first := w.keep(t, own, g, metav1.OwnerReference{}, 0)
	first.until(t, "service/postern-cloud", "service", "-o=name")
	uid := w.kubectl(t, "", "get", "service", "postern-cloud", "-n", "takeover", jsonpath+"{.metadata.uid}")
	first.stop()
	// The next gateway has heard nothing of cloud yet, and does not even know berlin.
	const grace = 5 * time.Second
	next := &gateway{peers: []api.PeerStatus{{Name: "cloud", State: api.StateConnected}}}
	second := w.keep(t, own, next, metav1.OwnerReference{}, grace)
	begun := time.Now()
	second.change(func(g *gateway) { g.peers = nil })
	second.until(t, "", "service", "-o=name")
	if d := time.Since(begun); d < grace/2 {
		t.Errorf("the Service of a peer that is not known yet was deleted after %v, want %v of grace", d, grace)
	}
	second.change(func(g *gateway) { g.peers = []api.PeerStatus{offering("cloud")} })
	second.until(t, "service/postern-cloud", "service", "-o=name")
	if again := w.kubectl(t, "", "get", "service", "postern-cloud", "-n", "takeover", jsonpath+"{.metadata.uid}"); again == uid {
		t.Error("it was never deleted")
	}
}

func (w *world) testRights(t *testing.T) {
	own := w.account(t, "rights")
	w.apply(t, "rights", strings.ReplaceAll(rights, "resources: [secrets], verbs: [get, list, create, patch, delete]", "resources: [secrets], verbs: [get]"))
	g := &gateway{
		peers:       []api.PeerStatus{offering("cloud")},
		kubeconfigs: map[string]api.Kubeconfig{"cloud": {Peer: "cloud"}}, credentials: map[string]api.Credential{"cloud": {Token: "t0"}},
	}
	s := w.keep(t, own, g, metav1.OwnerReference{}, 0)
	// Without the right to NetworkPolicies there are none, and that is no problem.
	s.untilCodes(t, "PST0721 secrets")
	s.until(t, "service/postern-cloud", "service", "-o=name")
	s.until(t, "", "networkpolicy", "-o=name")
	w.apply(t, "rights", rights+"---"+policyRights)
	s.untilCodes(t, "")
	s.until(t, base64.StdEncoding.EncodeToString([]byte("t0")), "secret/postern-cloud-kubeconfig", tokenOf)
	s.until(t, "networkpolicy.networking.k8s.io/postern-cloud", "networkpolicy", "-o=name")
}
