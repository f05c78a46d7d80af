package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// loaded loads a document with this spec.
func loaded(t *testing.T, spec string) (*Resolved, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edge.yaml")
	if err := os.WriteFile(file, []byte(head+"spec:\n"+spec), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file, Overrides{})
}

func TestInAClusterPeersComeFromTheCluster(t *testing.T) {
	r, err := loaded(t, "  kubernetes: {}\n  peers:\n  - name: cloud\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Kubernetes{Release: "postern", Service: "postern", PeerServices: true, Lease: 8 * time.Second}
	if r.Kubernetes == nil || !reflect.DeepEqual(*r.Kubernetes, want) {
		t.Errorf("got %+v, want %+v", r.Kubernetes, want)
	}
	if len(r.Peers) != 0 {
		t.Errorf("the file's peers count in a cluster: %+v", r.Peers)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Error(), "edge.yaml:6: spec.peers: ignored in a cluster") {
		t.Errorf("warnings: %v", r.Warnings)
	}
}

func TestTheReleaseNamesItsService(t *testing.T) {
	r, err := loaded(t, "  kubernetes: {release: west, peerServices: false, peerServicesFrom: [tenant], mcs: {namespaces: [shop, blog, shop], dns: {listen: \":10053\"}}, leaseSeconds: 15}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Kubernetes{Release: "west", Service: "west", PeerServicesFrom: []string{"tenant"}, MCS: &MCS{Namespaces: []string{"blog", "shop"}, DNS: ":10053"}, Lease: 15 * time.Second}
	if !reflect.DeepEqual(*r.Kubernetes, want) {
		t.Errorf("got %+v, want %+v", *r.Kubernetes, want)
	}
	next, err := loaded(t, "  kubernetes: {release: east, peerServices: false, leaseSeconds: 15}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := Diff(r, next).RestartError(); err == nil || !strings.Contains(err.Error(), "spec.kubernetes.release (west → east)") {
		t.Errorf("a running gateway takes another release: %v", err)
	}
}

func TestMistakesInTheClusterSettings(t *testing.T) {
	for given, want := range map[string]string{
		"{release: West}": `spec.kubernetes.release: "West" cannot begin the names of objects`,
		"{release: a-really-very-long-name-of-a-release-of-postern}": `want at most 40 lower-case letters`,
		"{service: a_b}":                      `spec.kubernetes.service: "a_b" is not a Service name`,
		"{peerServicesFrom: [tenant, \"*\"]}": `spec.kubernetes.peerServicesFrom[1]: "*" is not a valid namespace name`,
		"{mcs: {}}":                           "spec.kubernetes.mcs: set either namespaces or allNamespaces: true",
		"{mcs: {namespaces: [shop], allNamespaces: true}}": "spec.kubernetes.mcs: set either",
		"{mcs: {allNamespaces: true, dns: {}}}":            `spec.kubernetes.mcs.dns.listen: "" `,
		"{mcs: {namespaces: [\"*\"]}}":                     `spec.kubernetes.mcs.namespaces[0]: "*" is not a valid namespace name`,
		"{leaseSeconds: 1}":                                "spec.kubernetes.leaseSeconds: 1 is outside 4 to 120",
		"{leases: 1}":                                      "spec.kubernetes.leases",
	} {
		_, err := loaded(t, "  kubernetes: "+given+"\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", given, err, want)
		}
	}
}
