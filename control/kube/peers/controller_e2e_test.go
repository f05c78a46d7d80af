//go:build linux && e2e

package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/tunnel/peer"
)

// All subtests share one API server. It starts without the definitions.
func TestControllerInARealCluster(t *testing.T) {
	w := newWorld(t)
	t.Run("without the definitions", func(t *testing.T) { testWithoutDefinitions(t, w) })
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"a peer is shown as on a dashboard", testShown},
		{"many at once, the same again, and gone", testMany},
		{"what is wrong with one is no other's business", testIsolation},
		{"a Secret that is put right", testSecret},
		{"what changes is shown, and told of", testChange},
		{"peers that joined", testJoined},
		{"a peer that waits for approval", testApproval},
		{"somebody else writes too", testConflicts},
		{"without rights", testRights},
		{"a hundred at rest", testRest},
		{"the gateway ends", testEnd},
		{"the API server is away", testOutage},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

func isConnected(o *v1alpha1.Peer) bool { return o.Status.State == string(api.StateConnected) }

// condition returns an object's condition.
func condition(o *v1alpha1.Peer, kind string) metav1.Condition { return conditionOf(o.Status, kind) }

// refusedFor matches an object that is not in force for a reason.
func refusedFor(reason string) func(*v1alpha1.Peer) bool {
	return func(o *v1alpha1.Peer) bool {
		for _, kind := range []string{v1alpha1.Accepted, v1alpha1.Ready, v1alpha1.TunnelReady} {
			if x := condition(o, kind); x.Status != metav1.ConditionFalse || x.Reason != reason || x.ObservedGeneration != o.Generation {
				return false
			}
		}
		return o.Status.State == v1alpha1.StateRefused && condition(o, v1alpha1.Stalled).Status == metav1.ConditionTrue
	}
}

// hasEvent waits for an event about an object.
func (s *site) hasEvent(name, kind, reason, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	path := fmt.Sprintf("/api/v1/namespaces/%s/events?fieldSelector=involvedObject.name%%3D%s", s.namespace, name)
	if err := s.cluster.WaitFor(ctx, path, func(object []byte) bool {
		var e struct{ Type, Reason, Message string }
		return json.Unmarshal(object, &e) == nil && e.Type == kind && e.Reason == reason && strings.Contains(e.Message, text)
	}); err != nil {
		s.t.Errorf("no event %s %s with %q: %v\n%s", kind, reason, text, err, s.kubectl("", "get", "events", "-n", s.namespace))
	}
}

func testWithoutDefinitions(t *testing.T, w *world) {
	s := w.site(t, "undefined").run()
	s.eventually("the gateway says what is missing", func() (bool, string) {
		got := s.gateway.trouble()
		return len(got) == 1 && got[0].Code == catalogue.CRDMissing, fmt.Sprint(got)
	})
	if log := s.log.String(); !strings.Contains(log, "PST0720") || !strings.Contains(log, "kubectl apply --server-side -f") {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
	s.gateway.change(func() { s.gateway.joined["berlin"] = invited("berlin", keyOf(1)) })
	w.install()
	s.eventually("it is well again", func() (bool, string) {
		got := s.gateway.trouble()
		return len(got) == 0, fmt.Sprint(got)
	})
	s.peer("berlin", "the peer that joined meanwhile has an object", isConnected)
}

func testShown(t *testing.T, w *world) {
	s := w.site(t, "shown").run()
	s.apply(manifest("cloud", keyOf(1), "allow: [auth, apiServer]", "endpoints: ['198.51.100.7:51820', 'gw.example.net:51820']"))
	s.peer("cloud", "it connects", isConnected)
	out := s.kubectl("", "get", "peers", "-n", s.namespace)
	head, row, _ := strings.Cut(out, "\n")
	if got := strings.Fields(head); fmt.Sprint(got) != "[NAME MODE STATE PATH RTT AUTH API AGE]" {
		t.Errorf("the columns are %v", got)
	}
	if got := strings.Fields(row); len(got) != 8 || fmt.Sprint(got[:7]) != "[cloud InBand connected direct 12ms ok ok]" {
		t.Errorf("the row is %v", got)
	}
	if got := s.kubectl("", "get", "pspeer", "-n", s.namespace, "-o", "name"); got != "peer.postern.dev/cloud" {
		t.Errorf("by its short name: %q", got)
	}
	if got := s.kubectl("", "get", "postern", "-n", s.namespace, "-o", "name"); got != "peer.postern.dev/cloud" {
		t.Errorf("by the category: %q", got)
	}
	for _, kind := range []string{"Accepted", "TunnelReady", "Ready"} {
		s.kubectl("", "wait", "-n", s.namespace, "--for=condition="+kind, "--timeout=30s", "peer/cloud")
	}
	wide := strings.Fields(s.kubectl("", "get", "peers", "-n", s.namespace, "-o", "wide", "--no-headers"))
	if got := wide[8:]; fmt.Sprint(got) != "[198.51.100.7:51820 True Ready]" { // without a code, and a fake one makes no handshakes
		t.Errorf("the wide row ends with %v", got)
	}
	s.hasEvent("cloud", "Normal", "Connected", "direct path to 198.51.100.7:51820")
	byName, _ := s.gateway.has()
	p := byName["cloud"]
	if p.PublicKey != keyOf(1) || len(p.Endpoints) != 1 || len(p.EndpointNames) != 1 || p.Joined || !slices.Equal(p.Allow, []string{"apiServer", "auth"}) {
		t.Errorf("the gateway was given %+v", p)
	}
}

func testMany(t *testing.T, w *world) {
	const many = 20
	s := w.site(t, "many").run()
	var manifests []string
	for i := range many {
		manifests = append(manifests, manifest(fmt.Sprintf("peer-%02d", i), keyOf(i+1), "allow: [auth]"))
	}
	s.apply(manifests...)
	for i := range many {
		s.peer(fmt.Sprintf("peer-%02d", i), "it connects", isConnected)
	}
	versions := func() string {
		return s.kubectl("", "get", "peers", "-n", s.namespace, "-l", "!last", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
	}
	before := versions()
	_, sets := s.gateway.has()
	if sets > 10 {
		t.Errorf("the gateway was given its peers %d times", sets)
	}
	s.apply(manifests...)
	// When the last object is processed, all before it have been, too.
	s.apply(strings.Replace(manifest("peer-last", keyOf(99)), "metadata: {", "metadata: {labels: {last: 'true'}, ", 1))
	s.peer("peer-last", "it connects", isConnected)
	if after := versions(); after != before {
		t.Errorf("applying the same again changed objects: %s, was %s", after, before)
	}
	if _, again := s.gateway.has(); again != sets+1 {
		t.Errorf("the gateway was given its peers %d times more, want once for the last", again-sets)
	}
	s.kubectl("", "delete", "peers", "-n", s.namespace, "-l", "!last")
	s.eventually("only the last is a peer", func() (bool, string) {
		byName, _ := s.gateway.has()
		_, stays := byName["peer-last"]
		return stays && len(byName) == 1, fmt.Sprint(slices.Sorted(maps.Keys(byName)))
	})
}

func testIsolation(t *testing.T, w *world) {
	s := w.site(t, "isolation")
	s.gateway.named = []string{"registry"}
	s.gateway.refuse = func(list []config.Peer) error {
		for _, p := range list {
			if p.Name == "odd" {
				return fmt.Errorf("peer odd pleases nobody")
			}
		}
		return nil
	}
	s.apply(manifest("good", keyOf(1), "allow: [registry]", "local: {apiServer: '127.0.0.1:7443'}"))
	s.run()
	s.peer("good", "it connects", isConnected)
	s.apply(manifest("twin", keyOf(1)), manifest("self", s.gateway.key), manifest("odd", keyOf(2)),
		manifest("listener", keyOf(3), "local: {apiServer: '127.0.0.1:7443'}"), manifest("keyless", keyOf(4), "presharedKeySecretRef: {name: missing, key: psk}"),
		manifest("grants", keyOf(5), "allow: [auth, nothing]"), manifest("stock-a", keyOf(6), "stock: true", "allowedIPs: [10.9.0.0/24]"))
	s.peer("stock-a", "it connects", isConnected)
	s.apply(manifest("stock-b", keyOf(7), "stock: true", "allowedIPs: [10.9.0.7]"), manifest("overlay", keyOf(8), "stock: true", "allowedIPs: ['fd00::/9']"))
	for name, c := range map[string]struct{ reason, text string }{
		"twin":     {"PeerDuplicate", "Peer good"},
		"self":     {"PeerDuplicate", "this gateway itself"},
		"odd":      {"PeerRefused", "pleases nobody"},
		"listener": {"PeerRefused", "127.0.0.1:7443"},
		"keyless":  {"SecretUnusable", "Secret missing"},
		"stock-b":  {"PeerRefused", "overlaps an address of Peer stock-a"},
		"overlay":  {"PeerRefused", "overlaps the overlay"},
	} {
		o := s.peer(name, "it is refused", refusedFor(c.reason))
		if x := condition(o, v1alpha1.TunnelReady); !strings.HasPrefix(x.Message, "PST07") || !strings.Contains(x.Message, c.text) || !strings.Contains(x.Message, "Fix: ") {
			t.Errorf("%s: the condition says %q, want %q and what to do in it", name, x.Message, c.text)
		}
		s.hasEvent(name, "Warning", c.reason, c.text)
	}
	o := s.peer("grants", "it connects in spite of a grant for nothing", isConnected)
	if x := condition(o, v1alpha1.TunnelReady); !strings.Contains(x.Message, "PST0728") || o.Status.Code != "PST0728" {
		t.Errorf("grants: got code %q and %q", o.Status.Code, x.Message)
	}
	s.hasEvent("grants", "Warning", "GrantWithoutUse", "nothing")
	byName, _ := s.gateway.has()
	if got := slices.Sorted(maps.Keys(byName)); !slices.Equal(got, []string{"good", "grants", "stock-a"}) {
		t.Errorf("the gateway has %v", got)
	}
	if got := byName["good"].Allow; !slices.Equal(got, []string{"registry"}) {
		t.Errorf("good may reach %v", got)
	}
	// A gateway that is about to start does not know its key and services yet.
	first, err := s.controller().Initial(t.Context())
	if got := names(first); err != nil || got != "good grants odd self stock-a" {
		t.Errorf("a gateway starts with %s, %v", got, err)
	}
	s.kubectl("", "delete", "peer", "-n", s.namespace, "good")
	s.peer("twin", "the key is free now", isConnected)
}

func testSecret(t *testing.T, w *world) {
	s := w.site(t, "secret").run()
	psk, err := peer.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl("", "create", "secret", "generic", "keys", "-n", s.namespace, "--from-literal=psk=nonsense")
	s.kubectl("", "label", "secret", "keys", "-n", s.namespace, "postern.dev/use=peer")
	s.apply(manifest("cloud", keyOf(1), "presharedKeySecretRef: {name: keys, key: psk}"))
	o := s.peer("cloud", "nonsense is no key", refusedFor("SecretUnusable"))
	if x := condition(o, v1alpha1.TunnelReady); strings.Contains(x.Message, "nonsense") {
		t.Errorf("the condition shows what is in the Secret: %s", x.Message)
	}
	s.kubectl("", "patch", "secret", "keys", "-n", s.namespace, "--type=merge", `-p={"stringData":{"psk":"`+psk.Base64()+`"}}`)
	s.peer("cloud", "the Secret is looked at again", isConnected)
	byName, _ := s.gateway.has()
	if !byName["cloud"].PresharedKey.Equal(psk) {
		t.Error("the gateway has another preshared key")
	}
	if strings.Contains(s.log.String(), psk.Base64()) || strings.Contains(s.kubectl("", "get", "peers,events", "-n", s.namespace, "-o", "yaml"), psk.Base64()) {
		t.Error("the preshared key is shown")
	}
}

func testChange(t *testing.T, w *world) {
	s := w.site(t, "change").run()
	s.apply(manifest("cloud", keyOf(1)))
	o := s.peer("cloud", "it connects", isConnected)
	since := condition(o, v1alpha1.AuthReachable).LastTransitionTime
	s.gateway.change(func() {
		p := connected("cloud")
		p.Reachability.Outbound.APIServer = api.Verdict{Verdict: api.Error, Code: "PST0301", Cause: "the API server refuses", Fix: "start it"}
		s.gateway.status["cloud"] = p
	})
	o = s.peer("cloud", "the API server is shown to fail", func(o *v1alpha1.Peer) bool { return o.Status.APIServer == "error" })
	x := condition(o, v1alpha1.APIServerReachable)
	if x.Status != metav1.ConditionFalse || x.Reason != "APIServerRefused" || x.Message != "PST0301: the API server refuses. Fix: start it" || o.Status.Code != "PST0301" {
		t.Errorf("got %+v and code %s", x, o.Status.Code)
	}
	if now := condition(o, v1alpha1.AuthReachable).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("a condition that did not change did so at %v, was %v", now, since)
	}
	s.hasEvent("cloud", "Warning", "APIServerRefused", "PST0301")
	s.gateway.change(func() { delete(s.gateway.status, "cloud") })
	s.hasEvent("cloud", "Normal", "Cleared", "PST0301 is over")
	s.gateway.change(func() {
		p := connected("cloud")
		p.State, p.Path = api.StateFailed, api.Path{Kind: api.PathNone}
		p.Reachability.Outbound.Gateway = api.Verdict{Verdict: api.Error, Code: "PST0102", Cause: "silence", Fix: "look"}
		s.gateway.status["cloud"] = p
	})
	s.hasEvent("cloud", "Warning", "Lost", "PST0102")
	s.kubectl("", "patch", "peer", "cloud", "-n", s.namespace, "--type=merge", `-p={"spec":{"allow":["apiServer"]}}`)
	s.peer("cloud", "the edit is in force", func(o *v1alpha1.Peer) bool {
		byName, _ := s.gateway.has()
		return o.Generation == 2 && o.Status.ObservedGeneration == 2 && slices.Equal(byName["cloud"].Allow, []string{"apiServer"})
	})
}

func testConflicts(t *testing.T, w *world) {
	s := w.site(t, "conflicts").run()
	s.apply(manifest("cloud", keyOf(1)))
	s.peer("cloud", "it connects", isConnected)
	for i := range 8 {
		s.kubectl("", "annotate", "peer", "cloud", "-n", s.namespace, "--overwrite", fmt.Sprintf("n=%d", i))
		s.gateway.change(func() {
			p := connected("cloud")
			p.Path.Remote = fmt.Sprintf("198.51.100.%d:51820", i)
			s.gateway.status["cloud"] = p
		})
		s.kubectl("", "patch", "peer", "cloud", "-n", s.namespace, "--subresource=status", "--type=merge", fmt.Sprintf(`-p={"status":{"rtt":"%dh"}}`, i+1))
	}
	s.peer("cloud", "the last state is shown", func(o *v1alpha1.Peer) bool {
		return o.Status.Path != nil && o.Status.Path.Remote == "198.51.100.7:51820"
	})
	// The object is recreated: the status must be that of the new one.
	s.kubectl(manifest("cloud", keyOf(2)), "replace", "--force", "-n", s.namespace, "-f", "-")
	s.peer("cloud", "the new object is shown", func(o *v1alpha1.Peer) bool {
		byName, _ := s.gateway.has()
		return isConnected(o) && o.Spec.PublicKey == keyOf(2).String() && byName["cloud"].PublicKey == keyOf(2)
	})
}

func testRights(t *testing.T, w *world) {
	s := w.site(t, "rights")
	s.kubectl("", "create", "serviceaccount", "gateway", "-n", s.namespace)
	s.token = s.kubectl("", "create", "token", "gateway", "-n", s.namespace)
	s.apply(manifest("cloud", keyOf(1)))
	s.run()
	s.eventually("the gateway says what it may not", func() (bool, string) {
		got := s.gateway.trouble()
		return len(got) == 1 && got[0].Code == catalogue.ClusterForbidden, fmt.Sprint(got)
	})
	found := s.gateway.trouble()[0]
	_, fix := catalogue.Render(found.Code, found.Params)
	if !strings.Contains(fix.String(), "helm upgrade") || !strings.Contains(fix.String(), "--serviceaccount=rights:gateway") || !strings.Contains(fix.String(), "peers.postern.dev") {
		t.Errorf("the fix is %q", fix)
	}
	s.kubectl("", "create", "role", "peers", "-n", s.namespace, "--verb=get,list,watch,create,patch,delete", "--resource=peers.postern.dev")
	s.kubectl("", "create", "rolebinding", "peers", "-n", s.namespace, "--role=peers", "--serviceaccount=rights:gateway")
	s.eventually("what is missing still is the status", func() (bool, string) {
		got := s.gateway.trouble()
		return len(got) == 1 && got[0].Params.Resource == "peers.postern.dev/status", fmt.Sprint(got)
	})
	if byName, _ := s.gateway.has(); byName["cloud"].Name == "" {
		t.Error("a peer waits for its status to be written")
	}
	s.kubectl("", "create", "role", "status", "-n", s.namespace, "--verb=patch", "--resource=peers.postern.dev/status")
	s.kubectl("", "create", "rolebinding", "status", "-n", s.namespace, "--role=status", "--serviceaccount=rights:gateway")
	s.peer("cloud", "it is shown", isConnected)
	s.eventually("all is well", func() (bool, string) {
		got := s.gateway.trouble()
		return len(got) == 0, fmt.Sprint(got)
	})
}

// After a gateway is scaled to zero, Peers must not show that they are connected.
func testEnd(t *testing.T, w *world) {
	s := w.site(t, "end").run()
	s.apply(manifest("cloud", keyOf(1)))
	s.peer("cloud", "it connects", isConnected)
	s.stop()
	s.peer("cloud", "nothing is known of it", func(o *v1alpha1.Peer) bool {
		x := condition(o, v1alpha1.TunnelReady)
		return o.Status.State == v1alpha1.StateUnknown && o.Status.APIServer == "" && x.Status == metav1.ConditionUnknown && x.Reason == reasonStopped
	})
	s.run()
	s.peer("cloud", "it is known again", isConnected)
}

func testOutage(t *testing.T, w *world) {
	s := w.site(t, "outage").run()
	s.apply(manifest("cloud", keyOf(1)), manifest("berlin", keyOf(2)))
	s.peer("cloud", "it connects", isConnected)
	s.peer("berlin", "it connects", isConnected)
	_, sets := s.gateway.has()
	if err := w.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	s.gateway.change(func() {
		p := connected("cloud")
		p.State = api.StateConnecting
		s.gateway.status["cloud"] = p
	})
	s.eventually("the gateway says that its API server is silent", func() (bool, string) {
		got := s.gateway.trouble()
		return len(got) > 0 && got[0].Code == catalogue.ClusterSilent, fmt.Sprint(got)
	})
	if byName, again := s.gateway.has(); len(byName) != 2 || again != sets {
		t.Errorf("the gateway has %d peers and was given them %d times more", len(byName), again-sets)
	}
	if err := w.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.eventually("status catches up", func() (bool, string) {
		out, err := s.try("", "get", "peer", "cloud", "-n", s.namespace, "-o", "jsonpath={.status.state}")
		return err == nil && out == string(api.StateConnecting), fmt.Sprint(out, err)
	})
	s.kubectl("", "delete", "peer", "berlin", "-n", s.namespace)
	s.eventually("the cluster is heard again", func() (bool, string) {
		byName, _ := s.gateway.has()
		return len(byName) == 1 && len(s.gateway.trouble()) == 0, fmt.Sprint(byName, s.gateway.trouble())
	})
}
