//go:build linux && e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// identityReplacedWithin bounds how long a pod may have no valid token. The gateway has another
// within seconds, and the kubelet mounts it within a minute or two, or later if it is busy.
const identityReplacedWithin = 5 * time.Minute

// testRotation gives each gateway another key, the two another preshared key, and edge another
// identity at cloud. The Peers stay, and a pod of edge continues to use cloud's API server with
// its mounted Secret.
func testRotation(t *testing.T, c *clusters) {
	edge, cloud := c.edge, c.cloud
	watch := edge.follows()
	stop := edge.pulse()
	for _, one := range []*cluster{cloud, edge} {
		other := c.both()[one]
		had, psk := other.peer(one.name), one.presharedKey(other.name)
		out, err := one.postern("key", "rotate", "-o", "json")
		start := time.Now()
		var got api.KeyRotateResponse
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || !got.Rotated {
			t.Fatalf("%s: key rotate: %v\n%s", one.name, err, out)
		}
		now := other.waitPeer(one.name, "connected by its new key", func(p peerObject) bool {
			return p.Spec.PublicKey == got.PublicKey && p.usable()
		})
		one.waitPeer(other.name, "connected", peerObject.usable)
		if now.Metadata.UID != had.Metadata.UID || now.Spec.PublicKey == had.Spec.PublicKey {
			t.Errorf("%s: the Peer is %s with key %s, was %s with key %s; want the same with another key",
				other.name, now.Metadata.UID, now.Spec.PublicKey, had.Metadata.UID, had.Spec.PublicKey)
		}
		if p := one.presharedKey(other.name); p == psk || p != other.presharedKey(one.name) {
			t.Errorf("%s and %s have not agreed on another preshared key", one.name, other.name)
		}
		if one == cloud { // with edge's key its account changed, and the kubelet has yet to mount the token
			edge.sees(watch, cloud, "key-of-cloud")
		}
		t.Logf("%s has another key: all is as before %v after the command", one.name, time.Since(start).Round(100*time.Millisecond))
	}

	// With edge's key its account was replaced, too. Next the new account is deleted, on which
	// its identity depends.
	before := edge.identity("cloud")
	eventually(within(t, patience), t, "edge has an identity of its present account", func() (bool, string) {
		account, _ := cloud.Kubectl(within(t, patience), "", "get", "serviceaccount", "-n", accountNamespace, edgeAccount, "-o", "jsonpath={.metadata.uid}")
		before = edge.identity("cloud")
		uid := accountOf(t, before.Token)
		return uid == account, fmt.Sprintf("an identity of account %s, while that is %q", uid, account)
	})
	start := time.Now()
	cloud.kubectl("delete", "serviceaccount", "-n", accountNamespace, edgeAccount)
	eventually(within(t, identityReplacedWithin), t, "edge has another identity", func() (bool, string) {
		now := edge.identity("cloud")
		return now.Token != before.Token, fmt.Sprintf("the one before, good until %v", now.ExpirationTimestamp)
	})
	t.Logf("edge has another identity %v after its account was deleted", time.Since(start).Round(100*time.Millisecond))
	// With cloud's key its account at edge was replaced as well. A token works for some seconds
	// longer than its account, so the pod's success shows nothing yet.
	for one, other := range c.both() {
		eventually(within(t, identityReplacedWithin), t, "the pod in "+one.name+" has its new identity", func() (bool, string) {
			mounted, err := one.Kubectl(within(t, patience), "", inside("client", "/bin/sh", "-c", "read -r token </peer/token; echo $token")...)
			return strings.TrimSpace(mounted) == one.identity(other.name).Token, fmt.Sprint(mounted, err)
		})
		out, err := one.answered("get", "pods", "-n", tenant)
		if err != nil || !strings.Contains(out, "server") {
			t.Errorf("the pod in %s cannot use its new identity: %v\n%s", one.name, err, out)
		}
		t.Logf("%s: a pod that had mounted the old identity works %v after that", one.name, time.Since(start).Round(100*time.Millisecond))
	}
	edge.waitPeer("cloud", "usable", func(p peerObject) bool {
		return p.usable() && p.has("IdentityIssued", "True")
	})
	edge.sees(watch, cloud, "identity-of-edge")
	t.Logf("the longest time without an answer of cloud's API server was %v", stop().Round(100*time.Millisecond))
	watch.Kill()
}

// identity returns what the gateway presents to a peer's API server. Two that are issued within a
// second expire in the same second.
func (c *cluster) identity(name string) *clientauthentication.ExecCredentialStatus {
	c.t.Helper()
	out, err := c.postern("credential", name)
	var got clientauthentication.ExecCredential
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Status == nil || got.Status.Token == "" {
		c.t.Fatalf("%s has no token of %s: %v", c.name, name, err)
	}
	return got.Status
}

// accountOf returns the UID of the service account of a token.
func accountOf(t *testing.T, token string) string {
	t.Helper()
	var claims struct {
		Kubernetes struct {
			ServiceAccount struct{ UID string }
		} `json:"kubernetes.io"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a service account's token has %d parts, want 3 (RFC 7519 §3)", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil || claims.Kubernetes.ServiceAccount.UID == "" {
		t.Fatalf("a token names no service account: %v\n%s", err, payload)
	}
	return claims.Kubernetes.ServiceAccount.UID
}

// follows watches the peer's ConfigMaps from the pod client, like a controller: whenever the
// watch ends it lists, and watches again.
func (c *cluster) follows() *netlab.Process {
	c.t.Helper()
	script := "while :; do /bin/kubectl get configmaps -n " + tenant + " --watch -o name; /bin/sleep 1; done"
	return c.node.Start(netlab.Command{Args: append([]string{c.KubectlPath(), "--kubeconfig", c.Kubeconfig()}, inside("client", "/bin/sh", "-c", script)...)})
}

// sees creates a ConfigMap in the other cluster, and waits until the watch reports it.
func (c *cluster) sees(watch *netlab.Process, other *cluster, name string) {
	c.t.Helper()
	other.kubectl("create", "configmap", "-n", tenant, name)
	if _, err := watch.WaitStdout(within(c.t, identityReplacedWithin), func(s string) bool { return strings.Contains(s, "configmap/"+name+"\n") }); err != nil {
		c.t.Errorf("%s: the watch does not tell of %s: %v\n%s", c.name, name, err, watch.Stderr())
	}
}

// presharedKey returns a peer's preshared key from the gateway's state.
func (c *cluster) presharedKey(name string) string {
	c.t.Helper()
	var state struct {
		Peers []struct{ Name, PresharedKey string }
	}
	_, document, _ := strings.Cut(c.secret(release+"-state-peers", "peers.json"), "\n") // after the header
	if err := json.Unmarshal([]byte(document), &state); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range state.Peers {
		if p.Name == name && p.PresharedKey != "" {
			return p.PresharedKey
		}
	}
	c.t.Fatalf("%s has no preshared key with %s", c.name, name)
	return ""
}
