package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/control/api"
)

// gateway is a fake with given peers.
type gateway struct {
	mu          sync.Mutex
	peers       []api.PeerStatus
	kubeconfigs map[string]api.Kubeconfig
	credentials map[string]api.Credential
	ports       map[string]uint16
}

func (g *gateway) Status(context.Context) (api.Status, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return api.Status{Peers: slices.Clone(g.peers)}, nil
}

func (g *gateway) Kubeconfig(_ context.Context, peer string) (api.Kubeconfig, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, ok := g.kubeconfigs[peer]
	if !ok {
		return k, errors.New("not known yet")
	}
	return k, nil
}

func (g *gateway) Credential(_ context.Context, peer string) (api.Credential, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.credentials[peer]
	if !ok {
		return c, errors.New("none yet")
	}
	return c, nil
}

func (g *gateway) ServicePort(_, service string) (uint16, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.ports[service]
	return p, ok
}

// offering returns a peer with the API server and a registry.
func offering(name string) api.PeerStatus {
	return api.PeerStatus{Name: name, State: api.StateConnected, Version: "1.0", Offers: []string{"apiServer", "auth", "registry"}, Local: []api.Local{
		{Service: "registry", Address: "10.244.0.5:41001"}, {Service: "apiServer", Address: "10.244.0.5:41000"},
	}}
}

func keeperOf(g Gateway) *Keeper {
	return &Keeper{o: Options{Gateway: g, Namespace: "ns", Release: "rel", Port: 51820,
		Selector: map[string]string{"a": "b"}, Pods: map[string]string{"c": "d"}}, have: map[id]held{}}
}

func TestWhatIsOfferedToPods(t *testing.T) {
	api1, registry := port{"apiserver", 6443, 41000}, port{"registry", 5000, 41001}
	for _, c := range []struct {
		name   string
		change func(*api.PeerStatus)
		want   *offer // nil = nothing
	}{
		{"all", func(*api.PeerStatus) {}, &offer{ports: []port{api1, registry}}},
		{"what is not offered is not", func(p *api.PeerStatus) { p.Offers = []string{"registry"} }, &offer{ports: []port{registry}, noSecret: true}},
		{"a listener of the loopback interface cannot be led to", func(p *api.PeerStatus) { p.Local[0].Address = "127.0.0.1:41001" }, &offer{ports: []port{api1}}},
		{"a listener that is not there", func(p *api.PeerStatus) { p.Local[0].Error = "in use" }, &offer{ports: []port{api1}}},
		{"no listener just now: nothing goes", func(p *api.PeerStatus) { p.Local = nil }, &offer{keep: true}},
		{"connected, and has not said yet: nothing goes", func(p *api.PeerStatus) { p.Offers, p.Version = nil, "" }, &offer{keep: true}},
		{"remembered of an earlier run: the Secret stays", func(p *api.PeerStatus) { p.Offers, p.Version = []string{"registry"}, "" }, &offer{ports: []port{registry}}},
		{"nothing offered any more", func(p *api.PeerStatus) { p.Offers = []string{"auth"} }, &offer{noService: true, noSecret: true}},
		{"out-of-band there is a kubeconfig without a Service", func(p *api.PeerStatus) { p.Mode, p.Offers = api.ModeOutOfBand, nil }, &offer{noService: true}},
		{"a stock peer", func(p *api.PeerStatus) { p.Stock = true }, nil},
		{"one that waits for approval", func(p *api.PeerStatus) { p.ApprovalFingerprint = "x" }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := offering("cloud")
			c.change(&p)
			k := keeperOf(&gateway{peers: []api.PeerStatus{p}, ports: map[string]uint16{"registry": 5000}})
			got, err := k.wanted(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var want []offer
			if c.want != nil {
				c.want.peer = "cloud"
				want = []offer{*c.want}
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(offer{}, port{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPortThatIsNotKnownIsNotTakenOutOfAService(t *testing.T) {
	k := keeperOf(&gateway{peers: []api.PeerStatus{offering("cloud")}})
	offers, err := k.wanted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	service := func() object {
		list := k.objects(offers[0])
		return list[slices.IndexFunc(list, func(o object) bool { return o.kind == kindService })]
	}
	if s := service(); s.keep || len(s.spec["spec"].(map[string]any)["ports"].([]any)) != 1 {
		t.Errorf("a Service that is not there: got %+v, want one with what is known", s)
	}
	k.have[id{kindService, "postern-cloud"}] = held{uid: "x"}
	if s := service(); !s.keep {
		t.Errorf("a Service that is there: got %+v, want it to be kept", s)
	}
}

func TestOutOfBandTheKubeconfigLeadsToTheAPIServerItself(t *testing.T) {
	p := api.PeerStatus{Name: "cloud", State: api.StateConnected, Mode: api.ModeOutOfBand, Version: "1.0"}
	k := keeperOf(&gateway{peers: []api.PeerStatus{p},
		kubeconfigs: map[string]api.Kubeconfig{"cloud": {Peer: "cloud", Server: "https://api.example.net:6443"}},
		credentials: map[string]api.Credential{"cloud": {Token: "t0"}}})
	offers, err := k.wanted(t.Context())
	if err != nil || len(offers) != 1 {
		t.Fatalf("got %+v %v", offers, err)
	}
	list := k.objects(offers[0])
	if len(list) != 1 || list[0].kind != kindSecret || list[0].keep {
		t.Fatalf("got %+v, want the Secret alone", list)
	}
	text := string(offers[0].secret[keyKubeconfig])
	if !strings.Contains(text, `"server": "https://api.example.net:6443"`) || strings.Contains(text, "tls-server-name") {
		t.Errorf("got %s", text)
	}
}

func TestAKubeconfigWorksWhereverItIsMounted(t *testing.T) {
	for _, c := range []struct {
		name       string
		credential api.Credential
		ca         string
		keys       string
	}{
		{"token", api.Credential{Token: "t0"}, "CA", "ca.crt kubeconfig token"},
		{"certificate", api.Credential{ClientCertificate: "cert", ClientKey: "key"}, "CA", "ca.crt kubeconfig tls.crt tls.key"},
		{"a public authority", api.Credential{Token: "t0"}, "", "kubeconfig token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := secretData("https://postern-cloud.ns.svc:6443", api.Kubeconfig{Peer: "cloud", CAData: c.ca, ServerName: "kubernetes.default.svc"}, c.credential)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(data)), " "); got != c.keys {
				t.Errorf("keys: got %s, want %s", got, c.keys)
			}
			dir := t.TempDir()
			for name, text := range data {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
				&clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.Join(dir, "kubeconfig")}, nil).ClientConfig()
			if err != nil {
				t.Fatal(err)
			}
			in := func(file string, there bool) string {
				if !there {
					return ""
				}
				return filepath.Join(dir, file)
			}
			got := []string{config.Host, config.ServerName, config.CAFile, config.BearerTokenFile, config.CertFile, config.KeyFile}
			certificate := c.credential.ClientCertificate != ""
			want := []string{"https://postern-cloud.ns.svc:6443", "kubernetes.default.svc", in("ca.crt", c.ca != ""), in("token", !certificate), in("tls.crt", certificate), in("tls.key", certificate)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A policy closes the gateway's pods to everything that no policy allows, so each allows what
// everyone may reach.
func TestAPolicyLeavesOpenWhatIsForEverybody(t *testing.T) {
	for auth, want := range map[uint16][]any{
		0:    {"UDP 51820"},
		8443: {"UDP 51820", "TCP 8443"},
	} {
		k := keeperOf(&gateway{})
		k.o.AuthPort = auth
		var got []any
		for _, rule := range k.policy(offer{peer: "cloud", ports: []port{{"apiserver", 6443, 41000}}})["spec"].(map[string]any)["ingress"].([]any) {
			if rule := rule.(map[string]any); rule["from"] == nil {
				p := rule["ports"].([]any)[0].(map[string]any)
				got = append(got, fmt.Sprint(p["protocol"], " ", p["port"]))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("auth at port %d (-want +got):\n%s", auth, diff)
		}
	}
}
