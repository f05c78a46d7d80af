//go:build linux && e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube"
)

// gatewayAccount is the gateway's user at its own API server.
const gatewayAccount = "system:serviceaccount:" + gatewayNamespace + ":" + release

// testRights tries to gain rights with the token in the gateway's pod. control/kube/guard
// compares the account's rights with a list.
func testRights(t *testing.T, c *clusters) {
	cloud := c.cloud
	cloud.escalate(cloud.podToken(), func(escalation) bool { return true })
}

// podToken returns the token that is mounted into the gateway's pod.
func (c *cluster) podToken() string {
	c.t.Helper()
	pid, _ := c.process(gatewayNamespace, c.activePod(), "/postern")
	b, err := os.ReadFile(procFile(pid, "root"+accountFolder+"/token"))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// escalation is a way for the holder of the gateway's token to gain rights.
type escalation struct {
	name, method, path, body, as string
}

const rbacAPI = "/apis/rbac.authorization.k8s.io/v1"

// escalations returns 12 of them.
func escalations(request []byte) []escalation {
	binding := func(kind string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":%q,"metadata":{"name":"up"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
			"subjects":[{"kind":"ServiceAccount","namespace":%q,"name":%q}]}`, kind, gatewayNamespace, release)
	}
	csr := func(signer string) string {
		return fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"up"},
			"spec":{"signerName":%q,"usages":["client auth"],"request":%q}}`, signer, base64.StdEncoding.EncodeToString(request))
	}
	const token = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"up"},"spec":{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
		"containers":[{"name":"c","image":"i","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}`
	return []escalation{
		{name: "a certificate for the controller manager", method: http.MethodPost, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", body: csr("kubernetes.io/kube-apiserver-client")},
		{name: "a kubelet's certificate", method: http.MethodPost, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", body: csr("kubernetes.io/kube-apiserver-client-kubelet")},
		{name: "another namespace's Secrets", method: http.MethodGet, path: "/api/v1/namespaces/kube-system/secrets"},
		{name: "all Secrets", method: http.MethodGet, path: "/api/v1/secrets"},
		{name: "binding in our own namespace", method: http.MethodPost, path: rbacAPI + "/namespaces/" + gatewayNamespace + "/rolebindings", body: binding("RoleBinding")},
		{name: "binding in the accounts' namespace", method: http.MethodPost, path: rbacAPI + "/namespaces/postern-peers/rolebindings", body: binding("RoleBinding")},
		{name: "binding everywhere", method: http.MethodPost, path: rbacAPI + "/clusterrolebindings", body: binding("ClusterRoleBinding")},
		{name: "more rights in our own role", method: http.MethodPatch, path: rbacAPI + "/namespaces/" + gatewayNamespace + "/roles/" + release, body: `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`},
		{name: "impersonation", method: http.MethodGet, path: "/api/v1/namespaces", as: "system:admin"},
		{name: "a token of an account in another namespace", method: http.MethodPost, path: "/api/v1/namespaces/kube-system/serviceaccounts/namespace-controller/token", body: token},
		{name: "a pod in our own namespace, with an account of its choice", method: http.MethodPost, path: "/api/v1/namespaces/" + gatewayNamespace + "/pods", body: pod},
		{name: "exec into another pod", method: http.MethodPost, path: "/api/v1/namespaces/" + tenant + "/pods/server/exec?command=/bin/testserver&stdout=true"},
	}
}

// escalate tries the chosen ones with a token. Each must be refused, and not because it is
// malformed.
func (c *cluster) escalate(token string, chosen func(escalation) bool) {
	c.t.Helper()
	client := &http.Client{Transport: c.anonymous()}
	defer client.CloseIdleConnections()
	admin := c.AdminClient()
	defer admin.CloseIdleConnections()
	for _, e := range escalations(signingRequest(c.t)) {
		if !chosen(e) {
			continue
		}
		if status, body := c.ask(client, e, token); status != http.StatusForbidden {
			c.t.Errorf("%s: got %d, want %d: %.300s", e.name, status, http.StatusForbidden, body)
		}
		if e.as != "" || strings.HasSuffix(e.path, "stdout=true") {
			continue // it would impersonate the administrator, and exec has no dry run
		}
		e.path += map[bool]string{true: "&", false: "?"}[strings.Contains(e.path, "?")] + "dryRun=All"
		if status, body := c.ask(admin, e, ""); status >= http.StatusBadRequest {
			c.t.Errorf("%s: the administrator gets %d too, so it shows nothing: %.300s", e.name, status, body)
		}
	}
}

func (c *cluster) ask(client *http.Client, e escalation, token string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(within(c.t, patience), e.method, c.URL()+e.path, strings.NewReader(e.body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[e.method == http.MethodPatch])
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if e.as != "" {
		req.Header.Set("Impersonate-User", e.as)
		req.Header.Set("Impersonate-Group", "system:masters")
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, body.String()
}

// testLabel: pods without the label are refused, in the gateway's namespace and in another. With
// the label, pods of either namespace get through.
func testLabel(t *testing.T, c *clusters) {
	edge := c.edge
	edge.run(gatewayNamespace, "friend", clientPod("friend", "cloud", "postern.dev/peer-cloud: allow"))
	begin := time.Now()
	eventually(within(t, patience), t, "a pod with the label reaches cloud", func() (bool, string) {
		begin = time.Now()
		out, err := edge.reach("friend", patience)
		return err == nil && strings.Contains(out, "APIVersions"), fmt.Sprint(out, err)
	})
	long := max(reachTime, 3*time.Since(begin))
	for name, labels := range map[string]string{
		"stranger": "app: stranger", "wrong": "postern.dev/peer-cloud: deny", "elsewhere": "postern.dev/peer-another: allow",
	} {
		edge.run(gatewayNamespace, name, clientPod(name, "cloud", labels))
		if out, err := edge.reach(name, long); err == nil {
			t.Errorf("a pod with labels %q reaches cloud:\n%s", labels, out)
		}
	}
	// The current label counts.
	edge.kubectl("label", "pod", "-n", gatewayNamespace, "friend", "postern.dev/peer-cloud-")
	eventually(within(t, patience), t, "the pod that lost its label is refused", func() (bool, string) {
		out, err := edge.reach("friend", long)
		return err != nil, out
	})
	edge.kubectl("label", "pod", "-n", gatewayNamespace, "stranger", "postern.dev/peer-cloud=allow")
	eventually(within(t, patience), t, "the pod that got the label is let in", func() (bool, string) {
		out, err := edge.reach("stranger", long)
		return err == nil, fmt.Sprint(out, err)
	})
}

// reachTime is how long kubectl tries at least; it continues after a refused connection.
const reachTime = 6 * time.Second

// reach requests cloud's API server from a pod of edge, for a limited time.
func (c *cluster) reach(pod string, limit time.Duration) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	seconds := fmt.Sprint(math.Ceil(limit.Seconds()))
	return c.Kubectl(ctx, "", inside(pod, "/bin/timeout", seconds, "/bin/kubectl", "get", "--raw", "/api")...)
}

// testEditCannotInvite: a user who may edit the gateway's namespace may see peers, but not let
// clusters in.
func testEditCannotInvite(t *testing.T, c *clusters) {
	cloud := c.cloud
	cloud.kubectl("create", "serviceaccount", "-n", tenant, "editor")
	cloud.kubectl("create", "rolebinding", "-n", gatewayNamespace, "editor", "--clusterrole=edit", "--serviceaccount="+tenant+":editor")
	editor := "system:serviceaccount:" + tenant + ":editor"
	cloud.kubectl("create", "configmap", "-n", gatewayNamespace, "by-editor", "--as", editor)
	for _, manifest := range []string{
		"apiVersion: postern.dev/v1alpha1\nkind: Ticket\nmetadata: {name: by-editor}\nspec: {invite: {}}\n",
		fmt.Sprintf("apiVersion: postern.dev/v1alpha1\nkind: Peer\nmetadata: {name: by-editor}\nspec: {publicKey: %q}\n", strings.Repeat("A", 42)+"E="),
	} {
		out, err := cloud.Kubectl(within(t, patience), manifest, "create", "-n", gatewayNamespace, "--as", editor, "-f", "-")
		if err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("a user with role edit creates\n%s%s, %v; want it forbidden", manifest, out, err)
		}
	}
	// A controller aggregates the role that lets the user see Peers.
	eventually(within(t, patience), t, "a user with role edit sees Peers", func() (bool, string) {
		out, err := cloud.Kubectl(within(t, patience), "", "get", "peers", "-n", gatewayNamespace, "-o", "name", "--as", editor)
		return err == nil && strings.Contains(out, "edge"), fmt.Sprint(out, err)
	})
	for resource, verbs := range map[string]string{"peers": "update patch delete", "peers/status": "patch", "tickets": "get list watch create update patch delete"} {
		for verb := range strings.FieldsSeq(verbs) {
			out, err := cloud.Kubectl(within(t, patience), "", "auth", "can-i", verb, resource+".postern.dev", "-n", gatewayNamespace, "--as", editor)
			if err == nil || !strings.Contains(out+err.Error(), "no") {
				t.Errorf("may a user with role edit %s %s? %s, %v; want no", verb, resource, out, err)
			}
		}
	}
	for _, o := range []string{"rolebinding/editor", "configmap/by-editor"} {
		cloud.kubectl("delete", "-n", gatewayNamespace, o)
	}
}

// anonymous connects to the API server from its own network, without an identity.
func (c *cluster) anonymous() http.RoundTripper {
	c.t.Helper()
	ca, err := os.ReadFile(c.CAFile())
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: kube.ServerName, MinVersion: tls.VersionTLS12},
		DialContext:     c.node.DialContext,
	}
}

// signingRequest returns a request for a certificate of the controller manager, in PEM.
func signingRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:kube-controller-manager"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
