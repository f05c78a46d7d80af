package exposure

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
)

const clusterInfo = `apiVersion: v1
kind: Config
clusters:
- name: ""
  cluster: {server: "https://SERVER"}
`

func TestClusterInfoSaysWhereTheAPIServerIs(t *testing.T) {
	for server, want := range map[string]Endpoint{
		"203.0.113.5:6443": {Address: "203.0.113.5:6443", From: "ConfigMap cluster-info in kube-public"},
		"10.0.0.5:6443":    {Address: "10.0.0.5:6443", From: "ConfigMap cluster-info in kube-public (private)"},
		"api.example.net":  {Address: "api.example.net:443", From: "ConfigMap cluster-info in kube-public"},
		"[2001:db8::5]":    {Address: "[2001:db8::5]:443", From: "ConfigMap cluster-info in kube-public"},
	} {
		if got, err := ofClusterInfo(strings.Replace(clusterInfo, "SERVER", server, 1)); err != nil || got != want {
			t.Errorf("%s: got %+v %v, want %+v", server, got, err, want)
		}
	}
	for _, bad := range []string{"", "{", "clusters: []", strings.Replace(clusterInfo, "SERVER", "", 1)} {
		if got, err := ofClusterInfo(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

func TestTheFirstNodeOfTheControlPlaneIsTheOldest(t *testing.T) {
	older, newer := *node("b", "ExternalIP 203.0.113.1", "InternalIP 10.0.0.1"), *node("a", "InternalIP 10.0.0.2")
	older.CreationTimestamp, newer.CreationTimestamp = metav1.NewTime(made), metav1.NewTime(made.Add(time.Minute))
	want := Endpoint{Address: "10.0.0.1:6443", From: "InternalIP of control-plane node b (private)"}
	if got := ofControlPlane([]corev1.Node{newer, older}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := ofControlPlane(nil); got != (Endpoint{}) {
		t.Errorf("of none: got %+v", got)
	}
}

func TestTheAPIServersAddressMattersToPeersOutOfBandAlone(t *testing.T) {
	inBand := cluster(service(corev1.ServiceTypeClusterIP))
	if d := derive(inBand, now); len(d.Problems) != 0 || d.APIServer.Address != "" {
		t.Errorf("in-band: got %+v", d)
	}
	outOfBand := cluster(service(corev1.ServiceTypeClusterIP), authOf(corev1.ServiceTypeClusterIP), func(f *facts) { f.auth = "auth" })
	d := derive(outOfBand, now)
	if len(d.Problems) != 1 || d.Problems[0].Name != NameAPIServer || d.Problems[0].Code != catalogue.APIServerUnlocated {
		t.Fatalf("out-of-band: got %+v", d.Problems)
	}
	if _, fix := catalogue.Render(d.Problems[0].Code, d.Problems[0].Params); !strings.Contains(fix.String(), "managed cluster, set spec.services.apiServer.address") {
		t.Errorf("the fix is %q", fix)
	}
	outOfBand.located = location{} // nobody has answered yet
	if d := derive(outOfBand, now); len(d.Problems) != 0 {
		t.Errorf("not asked yet: got %+v", d.Problems)
	}
	outOfBand.located = location{Endpoint: Endpoint{Address: "10.0.0.5:6443"}, asked: true}
	if d := derive(outOfBand, now); len(d.Problems) != 0 || d.APIServer.Address != "10.0.0.5:6443" {
		t.Errorf("known: got %+v", d)
	}
	outOfBand.configured = "api.example.net:6443"
	if d := derive(outOfBand, now); d.APIServer.Address != "api.example.net:6443" || !strings.Contains(d.APIServer.From, "configuration") {
		t.Errorf("configured: got %+v", d.APIServer)
	}
}
