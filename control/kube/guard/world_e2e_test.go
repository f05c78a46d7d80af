//go:build linux && e2e

package guard

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	testkube "github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

const (
	// patience bounds waits; only a failing test takes that long.
	patience = 90 * time.Second
	// poll is the polling interval for conditions without an event.
	poll = 100 * time.Millisecond

	chartFolder = "../../../cmd/postern/deploy/chart"
	// namespace and release are those of the chart's installation.
	namespace = "postern"
	release   = "postern"
)

// scenery is what an attacker with the gateway's token would attack, and the gateway's pod, which
// no controller creates here.
const scenery = `
{apiVersion: v1, kind: Namespace, metadata: {name: tenant, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: mighty, namespace: tenant}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: mighty, namespace: postern}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: postern-peers}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: tenant}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: mighty},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
  subjects: [{kind: ServiceAccount, name: mighty, namespace: postern}]}
---
{apiVersion: v1, kind: Secret, metadata: {name: crown, namespace: tenant}, stringData: {jewels: "1"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: crown, namespace: postern}, stringData: {jewels: "1"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: ours, namespace: postern, labels: {postern.dev/use: peer}}, stringData: {psk: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: kube-system}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: postern}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: tenant}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: another, namespace: postern}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler, namespace: kube-system}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: closed, namespace: postern}, spec: {podSelector: {}, policyTypes: [Ingress]}}
---
{apiVersion: v1, kind: Event, metadata: {name: web.1, namespace: postern}, involvedObject: {kind: Service, name: web, namespace: postern}, reportingComponent: kubelet}
---
{apiVersion: v1, kind: Node, metadata: {name: one}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: tenant, labels: {app: web}},
  spec: {automountServiceAccountToken: false, securityContext: {runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: RuntimeDefault}},
    containers: [{name: c, image: i, env: [{name: PASSWORD, value: "1"}], securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: postern-0, namespace: postern, annotations: {a: b},
    labels: {app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern}},
  spec: {automountServiceAccountToken: false, serviceAccountName: postern, containers: [{name: postern, image: i}]}}
---
{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: theirs},
  spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: REQUEST}}
`

// world is a real API server with the chart installed, the gateway's token, and the
// administrator.
type world struct {
	cluster       kubetest.Cluster
	helm          string
	anyone, admin *http.Client
	token         string
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func newWorld(t *testing.T) *world {
	t.Helper()
	helm, err := testkube.Helm(within(t, 10*time.Minute), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c := kubetest.Start(t)
	pem, err := os.ReadFile(c.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	w := &world{cluster: c, helm: helm, admin: c.AdminClient(), anyone: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: testkube.ServerName, MinVersion: tls.VersionTLS12}}}}
	t.Cleanup(w.admin.CloseIdleConnections)
	t.Cleanup(w.anyone.CloseIdleConnections)
	w.install(t)
	w.kubectl(t, strings.Replace(scenery, "REQUEST", signingRequest(t, "system:kube-controller-manager"), 1), "apply", "-f", "-")
	w.token = w.kubectl(t, "", "create", "token", "-n", namespace, release)
	return w
}

// install installs or upgrades the chart, with values that differ from the defaults.
func (w *world) install(t *testing.T, values ...string) {
	t.Helper()
	args := []string{"upgrade", "--install", release, chartFolder, "-n", namespace, "--create-namespace", "--set", "name=edge", "--set", "service.type=NodePort"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	if _, err := w.cluster.Helm(within(t, patience), w.helm, args...); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl as the administrator.
func (w *world) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return w.cluster.Run(t, stdin, args...)
}

// gateway connects to the API server with the gateway's account.
func (w *world) gateway(t *testing.T) *kube.Cluster {
	t.Helper()
	file := w.cluster.Bearer(t, namespace, w.token)
	c, err := kube.ConnectContext(kubeconfig.Flags{File: file}, "postern-test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request, with the gateway's token or as the administrator, and returns the status
// and the body.
func (w *world) ask(t *testing.T, r request, admin bool) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(within(t, patience), r.method, w.cluster.URL()+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", r.mediaType)
	client := w.admin
	if !admin {
		client = w.anyone
		q.Header.Set("Authorization", "Bearer "+w.token)
		for header, value := range r.as {
			q.Header.Set(header, value)
		}
	}
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body.String()
}

// eventually polls for a condition without an event.
func eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	ctx := within(t, patience)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		good, saw := ok()
		if good {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not so in time; last seen: %s", what, saw)
		}
	}
}
