//go:build linux && e2e

package kube

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

// testOpenWatch verifies what README.md says about peers whose connections bypass the tunnel: the
// API server authenticates a request only at its start, so an open watch continues after the
// account is deleted, with all its permissions.
func testOpenWatch(t *testing.T, w *world) {
	ns := w.namespace(t, "openwatch")
	w.kubectl(t, "", "create", "role", "watcher", "-n", ns, "--verb=get,list,watch", "--resource=configmaps")
	w.kubectl(t, "", "create", "rolebinding", "watcher", "-n", ns, "--role=watcher", "--group=system:serviceaccounts:"+ns)
	s := w.issuer(t, w.config(t, "", ""), ns)
	got := s.issueTo(t, edge)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	eventually(t, "the peer may watch", func() (bool, string) {
		status, body, err := w.get(within(t, patience), got.Token, path)
		return err == nil && status == http.StatusOK, body
	})
	q, err := http.NewRequestWithContext(within(t, patience), http.MethodGet, w.cluster.URL()+path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+string(got.Token))
	resp, err := w.http.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.Revoke(edge)
	w.waitDead(t, got.Token)
	w.kubectl(t, "", "delete", "rolebinding", "watcher", "-n", ns)
	w.kubectl(t, "", "create", "configmap", "after-the-removal", "-n", ns)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "after-the-removal") {
			return
		}
	}
	t.Errorf("the watch ended (%v): README.md says that it outlives the removal", lines.Err())
}
