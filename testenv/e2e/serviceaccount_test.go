//go:build linux && e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	accountNamespace = "postern-peers"
	edgeAccount      = "postern-peer-edge"
	edgeUser         = "system:serviceaccount:" + accountNamespace + ":" + edgeAccount
	// tokenLife is the default of issuer.serviceAccount.ttl.
	tokenLife = time.Hour
	// revokedWithin is how long a removed peer's token may live: an API server caches a valid
	// token for 10 s.
	revokedWithin = 20 * time.Second
)

// tokenWorld is a world with a real API server behind cloud, where cloud has only the rights of
// the shipped role.
type tokenWorld struct {
	*world
	cloud, edge *gateway
	cluster     kubetest.Cluster
	kubeconfig  string // edge's, of postern
}

func newTokenWorld(t *testing.T) *tokenWorld {
	t.Helper()
	w := newWorld(t)
	cluster := kubetest.With(t, kube.Options{
		Dir: tempDir(t), Namespace: w.kube.Namespace(), Address: netip.MustParseAddr(kubeAddr),
	})
	k := &tokenWorld{world: w, cluster: cluster, kubeconfig: filepath.Join(tempDir(t), "cloud.kubeconfig")}
	role, err := os.ReadFile("../../cmd/postern/deploy/rbac/peer-accounts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	k.admin(string(role), "apply", "-f", "-")
	token := cluster.Gateway(t, "postern")
	k.admin("", "create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=namespaces")
	k.admin("", "create", "clusterrolebinding", "edge-reads", "--clusterrole=reader", "--serviceaccount="+accountNamespace+":"+edgeAccount)

	k.cloud = newGateway(t, w.cloud, "cloud", func(s *api.GatewaySpec) {
		s.Services.APIServer = &api.APIServerService{Address: cluster.Server().String(), ServerName: kube.ServerName, CAFile: cluster.CAFile()}
		s.Services.Auth = &api.AuthService{Issuer: &api.Issuer{ServiceAccount: &api.ServiceAccountIssuer{}}}
	})
	k.launchBeside(token)
	k.cloud.waitReady()
	k.edge = newGateway(t, w.edge, "edge").start()
	return k
}

// admin runs kubectl as the administrator.
func (k *tokenWorld) admin(stdin string, args ...string) string {
	k.t.Helper()
	return k.cluster.Run(k.t, stdin, args...)
}

// launchBeside runs cloud outside its cluster, with a token for it.
func (k *tokenWorld) launchBeside(token string) {
	k.t.Helper()
	if err := k.cluster.WriteTokenKubeconfig(filepath.Join(k.cloud.dir, "kubeconfig"), "", token); err != nil {
		k.t.Fatal(err)
	}
	k.relaunch()
}

// relaunch runs cloud with its existing kubeconfig.
func (k *tokenWorld) relaunch() {
	k.cloud.proc = k.cloud.host.Start(netlab.Command{
		Args: []string{k.cloud.bin, "gateway", "--config", k.cloud.configFile()},
		Env:  []string{"KUBECONFIG=" + filepath.Join(k.cloud.dir, "kubeconfig"), "KUBERNETES_SERVICE_HOST="},
	})
}

// kubectl runs kubectl as a user of edge, with postern's kubeconfig.
func (k *tokenWorld) kubectl(args ...string) (string, error) {
	k.t.Helper()
	p, err := netlab.Start(netlab.Command{
		Namespace: k.world.edge.Namespace(),
		Args:      append([]string{k.cluster.KubectlPath(), "--kubeconfig", k.kubeconfig}, args...),
		Env:       []string{"PATH=" + filepath.Dir(k.edge.bin) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Dir(k.kubeconfig), "KUBECONFIG="},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	defer p.Kill()
	code, err := p.Wait(within(k.t, patience))
	if err != nil {
		k.t.Fatal(err)
	}
	if code != 0 {
		return "", fmt.Errorf("kubectl %s: exit code %d: %s", strings.Join(args, " "), code, p.Stderr())
	}
	return p.Stdout(), nil
}

// credential is what edge's exec plugin returns to kubectl.
type credential struct {
	Status struct {
		Token                 string    `json:"token"`
		ClientCertificateData string    `json:"clientCertificateData"`
		ClientKeyData         string    `json:"clientKeyData"`
		ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
	} `json:"status"`
}

func (k *tokenWorld) credential() credential {
	k.t.Helper()
	var c credential
	if err := json.Unmarshal([]byte(k.edge.must("credential", "cloud")), &c); err != nil {
		k.t.Fatal(err)
	}
	return c
}

// client connects to the API server from its own network, bypassing the gateways.
func (k *tokenWorld) client() *http.Client {
	k.t.Helper()
	pem, err := os.ReadFile(k.cluster.CAFile())
	if err != nil {
		k.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: kube.ServerName, MinVersion: tls.VersionTLS12},
		DialContext:     k.kube.DialContext,
	}}
	k.t.Cleanup(c.CloseIdleConnections)
	return c
}

// status returns the API server's HTTP status for a token.
func (k *tokenWorld) status(ctx context.Context, c *http.Client, token string) int {
	k.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.cluster.URL()+"/api/v1/namespaces", nil)
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is reused
	return resp.StatusCode
}

// TestIdentitiesFromTheCluster follows a token from the ticket to the removal.
func TestIdentitiesFromTheCluster(t *testing.T) {
	t.Parallel()
	k := newTokenWorld(t)
	start := time.Now()
	k.edge.must("join", k.cloud.invite("--name", "edge"))
	p := k.edge.waitPeer("cloud", "with an identity", func(p api.PeerStatus) bool { return p.Identity != nil })
	t.Logf("an identity until %s, %v after the join began", p.Identity.NotAfter.Format(time.RFC3339), time.Since(start).Round(time.Millisecond))
	if life := time.Until(p.Identity.NotAfter); life < tokenLife-5*time.Minute || life > tokenLife+5*time.Minute {
		t.Errorf("it lasts %v, want %v", life, tokenLife)
	}
	k.waitAPIServer()
	k.checkUse(t)
	k.checkReplaced(t)
	k.checkRestart(t)
	k.checkRemoval(t)
	for _, g := range []*gateway{k.cloud, k.edge} {
		if log := g.proc.Stderr(); strings.Contains(log, "eyJ") { // the beginning of every Kubernetes token
			t.Errorf("%s logged a token:\n%s", g.name, log)
		}
	}
}

// waitAPIServer waits until edge's check of cloud's API server with the token is ok.
func (k *tokenWorld) waitAPIServer() {
	k.t.Helper()
	k.edge.waitPeer("cloud", "with a reachable API server", func(p api.PeerStatus) bool {
		return p.Reachability.Outbound.APIServer.Verdict == api.OK && p.Reachability.Outbound.Auth.Verdict == api.OK
	})
}

func (k *tokenWorld) checkUse(t *testing.T) {
	t.Helper()
	k.edge.must("kubeconfig", "cloud", "-f", k.kubeconfig)
	if out, err := k.kubectl("get", "ns"); err != nil || !containsAll(out, "default", accountNamespace) {
		t.Errorf("kubectl get ns: %v\n%s", err, out)
	}
	if out, err := k.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); err != nil || out != edgeUser {
		t.Errorf("kubectl auth whoami: %q, %v; want %q", out, err, edgeUser)
	}
	if out, err := k.kubectl("get", "secrets", "-A"); err == nil || !containsAll(err.Error(), "Forbidden", edgeUser) {
		t.Errorf("reading Secrets: got %q, %v; want Forbidden for %s", out, err, edgeUser)
	}
	c := k.credential()
	if c.Status.Token == "" || c.Status.ClientCertificateData != "" || c.Status.ClientKeyData != "" || c.Status.ExpirationTimestamp.IsZero() {
		t.Errorf("the credential should be a token with an end, and nothing else: token %v, certificate %v, end %v",
			c.Status.Token != "", c.Status.ClientCertificateData != "", c.Status.ExpirationTimestamp)
	}
}

// checkReplaced deletes the account, as an operator may. The token is rejected, and another is
// issued automatically.
func (k *tokenWorld) checkReplaced(t *testing.T) {
	t.Helper()
	old := k.credential().Status.Token
	k.admin("", "delete", "serviceaccount", "-n", accountNamespace, edgeAccount)
	start := time.Now()
	ctx := within(t, 3*time.Minute)
	client := k.client()
	eventually(ctx, t, "the token of the deleted account ends", func() (bool, string) {
		status := k.status(ctx, client, old)
		return status == http.StatusUnauthorized, fmt.Sprint(status)
	})
	k.edge.postern(ctx, "check", "cloud") // what an operator would do; it exits 1
	eventually(ctx, t, "another token is there", func() (bool, string) {
		out, err := k.kubectl("get", "ns")
		return err == nil && k.credential().Status.Token != old, fmt.Sprint(out, err)
	})
	t.Logf("another token %v after the account was deleted", time.Since(start).Round(100*time.Millisecond))
	k.waitAPIServer()
}

// checkRestart restarts edge, which keeps its token.
func (k *tokenWorld) checkRestart(t *testing.T) {
	t.Helper()
	had := k.credential()
	k.edge.stop(syscall.SIGTERM)
	k.edge.start()
	if got := k.credential(); got != had {
		t.Errorf("after a restart the token ends at %v, want the same, until %v", got.Status.ExpirationTimestamp, had.Status.ExpirationTimestamp)
	}
	k.edge.waitConnected("cloud")
	k.waitAPIServer()
}

// checkRemoval ends edge's access: through the gateway at once, and with the copied token
// elsewhere once the API server's cache has expired.
func (k *tokenWorld) checkRemoval(t *testing.T) {
	t.Helper()
	token := k.credential().Status.Token
	client, ctx := k.client(), within(t, patience)
	if status := k.status(ctx, client, token); status != http.StatusOK {
		t.Fatalf("before the removal: status %d", status)
	}
	k.cloud.must("peer", "remove", "edge", "--force")
	start := time.Now()
	if out, err := k.kubectl("get", "ns", "--request-timeout=5s"); err == nil {
		t.Errorf("a removed peer still uses the API server through the gateway:\n%s", out)
	}
	eventually(ctx, t, "the token ends", func() (bool, string) {
		status := k.status(ctx, client, token)
		return status == http.StatusUnauthorized, fmt.Sprint(status)
	})
	late(t, "the peer is removed, and its token dead", time.Since(start), revokedWithin)
	if out := k.admin("", "get", "serviceaccounts", "-n", accountNamespace, "-o", "name"); strings.Contains(out, edgeAccount) {
		t.Errorf("the account is still there: %s", out)
	}
	k.cloud.waitLog("audit", "revoke", "edge")
}

// TestARemovalDuringAnOutageIsMadeGood removes the peer while the API server is stopped, and
// kills the gateway before it is back. Only the missing peer shows that it was removed.
func TestARemovalDuringAnOutageIsMadeGood(t *testing.T) {
	k := newTokenWorld(t)
	k.edge.must("join", k.cloud.invite("--name", "edge"))
	k.edge.waitPeer("cloud", "with an identity", func(p api.PeerStatus) bool { return p.Identity != nil })
	token, client := k.credential().Status.Token, k.client()
	if status := k.status(within(t, patience), client, token); status != http.StatusOK {
		t.Fatalf("before the outage: status %d", status)
	}
	if err := k.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	k.edge.waitConnected("cloud") // independent of the API server
	start := time.Now()
	k.cloud.must("peer", "remove", "edge", "--force")
	late(t, "the peer is removed", time.Since(start), removalDeadline)
	k.cloud.waitLog("may still be valid")
	k.cloud.stop(syscall.SIGKILL)
	k.relaunch()
	k.cloud.waitReady()
	if err := k.cluster.StartAPIServer(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	client.CloseIdleConnections() // those to the killed API server
	ctx := within(t, patience)
	eventually(ctx, t, "the token ends", func() (bool, string) {
		status := k.status(ctx, client, token)
		return status == http.StatusUnauthorized, fmt.Sprint(status)
	})
	late(t, "the API server is back, and the token dead", time.Since(start), revokedWithin)
}
