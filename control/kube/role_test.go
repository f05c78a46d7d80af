//go:build linux && e2e

package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/kube/guard/guardtest"
)

// testRole verifies that the shipped role is sufficient for the issuer, and permits no
// escalation.
func testRole(t *testing.T, w *world) {
	const ns = "postern-peers"
	w.kubectl(t, manifest(t, "peer-accounts.yaml"), "apply", "-f", "-")
	w.namespace(t, "postern")
	w.kubectl(t, "", "create", "serviceaccount", "-n", "postern", "postern")
	token := auth.Token(w.kubectl(t, "", "create", "token", "-n", "postern", "postern"))

	guardtest.Install(t, w.cluster.Cluster)
	s := w.issuer(t, w.config(t, string(token), ""), ns)
	got := s.issueTo(t, edge)
	if user := w.user(t, got.Token); user != accountOf(ns, edge) {
		t.Errorf("the bearer is %q, want %q", user, accountOf(ns, edge))
	}
	s.Revoke(edge)
	w.waitDead(t, got.Token)
	if log := s.log.String(); strings.Contains(log, "WARN") {
		t.Errorf("something was refused:\n%s", log)
	}

	w.namespace(t, "tenant")
	w.kubectl(t, "", "create", "serviceaccount", "-n", "tenant", "mighty")
	w.kubectl(t, "", "create", "secret", "generic", "-n", "tenant", "crown", "--from-literal=jewels=1")
	for _, e := range escalations {
		status, body, err := w.ask(within(t, patience), token, e.method, e.path, e.body, e.header)
		if err != nil || status != http.StatusForbidden {
			t.Errorf("%s: got %d %v, want %d: %.300s", e.name, status, err, http.StatusForbidden, body)
		}
	}
	// The same requests are valid: the administrator may send them.
	admin := w.cluster.AdminClient()
	defer admin.CloseIdleConnections()
	for _, e := range escalations {
		if e.header.Get("Impersonate-User") != "" {
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), e.method, w.cluster.URL()+e.path+"?dryRun=All", strings.NewReader(e.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if v := e.header.Get("Content-Type"); v != "" {
			req.Header.Set("Content-Type", v)
		}
		resp, err := admin.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized {
			t.Errorf("%s: the administrator gets %d too, so it shows nothing", e.name, resp.StatusCode)
		}
	}
}

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

func binding(kind, namespace string) string {
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":%q,"metadata":{"name":"up","namespace":%q},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
		"subjects":[{"kind":"ServiceAccount","namespace":"postern","name":"postern"}]}`, kind, namespace)
}

const tokenRequest = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}`

// escalations are ways to use the gateway's token to get more permissions.
var escalations = []struct {
	name, method, path, body string
	header                   http.Header
}{
	{name: "another namespace's secret", method: http.MethodGet, path: "/api/v1/namespaces/tenant/secrets/crown"},
	{name: "all secrets", method: http.MethodGet, path: "/api/v1/secrets"},
	{name: "secrets of the accounts' namespace", method: http.MethodGet, path: "/api/v1/namespaces/postern-peers/secrets"},
	{name: "a token that never ends", method: http.MethodPost, path: "/api/v1/namespaces/postern-peers/secrets",
		body: `{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":{"name":"up","annotations":{"kubernetes.io/service-account.name":"default"}}}`},
	{name: "a token of another namespace's account", method: http.MethodPost, path: "/api/v1/namespaces/tenant/serviceaccounts/mighty/token", body: tokenRequest},
	{name: "a token of a controller's account", method: http.MethodPost, path: "/api/v1/namespaces/kube-system/serviceaccounts/clusterrole-aggregation-controller/token", body: tokenRequest},
	{name: "an account in another namespace", method: http.MethodPost, path: "/api/v1/namespaces/tenant/serviceaccounts",
		body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"up"}}`},
	{name: "a certificate as kube-controller-manager", method: http.MethodPost, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests",
		body: `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"up"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"request":"eA=="}}`},
	{name: "approval of a certificate", method: http.MethodPut, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests/up/approval",
		body: `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"up"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"request":"eA=="}}`},
	{name: "bind cluster-admin everywhere", method: http.MethodPost, path: rbacPath + "clusterrolebindings", body: binding("ClusterRoleBinding", "")},
	{name: "bind cluster-admin in its namespace", method: http.MethodPost, path: rbacPath + "namespaces/postern-peers/rolebindings", body: binding("RoleBinding", "postern-peers")},
	{name: "escalate its own role", method: http.MethodPatch, path: rbacPath + "namespaces/postern-peers/roles/postern-peer-accounts",
		body: `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, header: http.Header{"Content-Type": {"application/merge-patch+json"}}},
	{name: "make a role", method: http.MethodPost, path: rbacPath + "clusterroles",
		body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"up"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`},
	{name: "impersonate the administrators", method: http.MethodGet, path: "/api/v1/namespaces",
		header: http.Header{"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}}},
	{name: "run a pod", method: http.MethodPost, path: "/api/v1/namespaces/tenant/pods",
		body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"up"},"spec":{"serviceAccountName":"default","containers":[{"name":"up","image":"up"}]}}`},
	{name: "execute in a pod", method: http.MethodPost, path: "/api/v1/namespaces/tenant/pods/any/exec"},
	{name: "list nodes", method: http.MethodGet, path: "/api/v1/nodes"},
	{name: "ask a kubelet", method: http.MethodGet, path: "/api/v1/nodes/any/proxy/pods"},
	{name: "make a namespace", method: http.MethodPost, path: "/api/v1/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"up"}}`},
	{name: "change an account", method: http.MethodPatch, path: "/api/v1/namespaces/postern-peers/serviceaccounts/default",
		body: `{"metadata":{"labels":{"x":"y"}}}`, header: http.Header{"Content-Type": {"application/merge-patch+json"}}},
}
