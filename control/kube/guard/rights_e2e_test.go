//go:build linux && e2e

package guard

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rightsFile lists the gateway's RBAC rights, by namespace; namedFile and allFile list those with
// mcs.namespaces={tenant} and with mcs.allNamespaces.
const (
	rightsFile = "testdata/can-i.golden"
	namedFile  = "testdata/can-i-mcs-tenant.golden"
	allFile    = "testdata/can-i-mcs-all.golden"
)

// everyones is a right that every account has since Kubernetes 1.37.
const everyones = "clustertrustbundles.certificates.k8s.io "

var update = flag.Bool("update", false, "write the golden file")

func testRights(t *testing.T, w *world) {
	rightsAre(t, w, rightsFile, namespace, "postern-peers", "kube-public", "default")
}

// rightsAre compares the gateway's rights in namespaces with a file.
func rightsAre(t *testing.T, w *world, file string, namespaces ...string) {
	t.Helper()
	got := &strings.Builder{}
	for _, ns := range namespaces {
		lines := strings.Split(w.kubectl(t, "", "auth", "can-i", "--list", "-n", ns, "--as", "system:serviceaccount:"+namespace+":"+release), "\n")
		for i, line := range lines {
			lines[i] = strings.Join(strings.Fields(line), " ")
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, everyones) })
		slices.Sort(lines[1:])
		fmt.Fprintf(got, "# namespace %s\n%s\n", ns, strings.Join(lines, "\n"))
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the gateway's rights are not those of %s (-want +got):\n%s", file, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")))
	}
}

// testNothingOfTheCluster: a gateway that is not reached by a node's address has no cluster-wide
// right.
func testNothingOfTheCluster(t *testing.T, w *world) {
	w.install(t, "service.type=ClusterIP")
	eventually(t, "nodes cannot be listed", func() (bool, string) {
		status, body := w.ask(t, read("/api/v1/nodes"), false)
		return status == http.StatusForbidden, body
	})
	if bindings := w.kubectl(t, "", "get", "clusterrolebinding", "-o", `jsonpath={range .items[?(@.subjects[0].name=="`+release+`")]}{.metadata.name}{end}`); bindings != "" {
		t.Errorf("there is %s", bindings)
	}
}

// testPeerServicesFrom: the right to list pods is granted only in the named namespaces.
func testPeerServicesFrom(t *testing.T, w *world) {
	w.install(t, "peerServicesFrom={tenant,postern}")
	eventually(t, "pods of the namespace that is named are listed", func() (bool, string) {
		status, body := w.ask(t, read(tenants+"pods"), false)
		return status == http.StatusOK, body
	})
	for _, path := range []string{"/api/v1/pods", system + "pods", tenants + "pods/web", tenants + "secrets"} {
		if status, body := w.ask(t, read(path), false); status != http.StatusForbidden {
			t.Errorf("%s: got %d, want it forbidden: %.300s", path, status, body)
		}
	}
}
