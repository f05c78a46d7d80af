//go:build linux && e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// testCertificates makes cloud's own signer issue certificates instead of tokens, which its owner
// denies at first, and then goes back. edge keeps its certificate, which is valid until it
// expires. Without the chart's policy the right that this needs would be worth the whole cluster,
// so the escalations with the gateway's token are tried again.
func testCertificates(t *testing.T, c *clusters) {
	edge, cloud := c.edge, c.cloud
	const binding = "by-certificate"
	user := "postern:peer:" + cloud.name + ":edge"
	cloud.kubectl("create", "rolebinding", binding, "-n", tenant, "--clusterrole=edit", "--user="+user)
	certificates := []string{"service.type=NodePort", fmt.Sprintf("service.nodePort=%d", cloudNodePort), "issuer.type=csr"}
	cloud.apply(ownersApproval, "apply", "-f", "-")
	cloud.upgrade(release, gatewayNamespace, certificates...)
	c.deniesRequests()
	start := time.Now()
	secret := func(key string) string {
		return edge.kubectl("get", "secret", "-n", gatewayNamespace, "postern-cloud-kubeconfig", "-o", `jsonpath={.data['`+strings.ReplaceAll(key, ".", `\.`)+`']}`)
	}
	eventually(within(t, patience), t, "edge has a certificate instead of a token", func() (bool, string) {
		_, _ = edge.postern("check", "cloud") // as a user would do: the token died with its account
		pem, err := base64.StdEncoding.DecodeString(secret("tls.crt"))
		return err == nil && strings.Contains(string(pem), "BEGIN CERTIFICATE") && secret("token") == "", string(pem)
	})
	t.Logf("edge has a certificate %v after nobody denied it any more", time.Since(start).Round(100*time.Millisecond))
	edge.run(gatewayNamespace, "certified", clientPod("certified", "cloud", "postern.dev/peer-cloud: allow"))
	whoami := inside("certified", "/bin/kubectl", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if out, err := edge.Kubectl(within(t, patience), "", whoami...); err != nil || out != user {
		t.Errorf("kubectl auth whoami with the certificate: %q, %v; want %s", out, err, user)
	}
	if out, err := edge.Kubectl(within(t, patience), "", inside("certified", "/bin/kubectl", "get", "pods", "-n", tenant)...); err != nil || !strings.Contains(out, "server") {
		t.Errorf("kubectl get pods with the certificate: %v\n%s", err, out)
	}
	// There is no namespace of accounts now.
	cloud.escalate(cloud.podToken(), func(e escalation) bool { return !strings.Contains(e.path, "postern-peers") })

	cloud.upgrade(release, gatewayNamespace, c.cloudValues()...)
	edge.waitPeer("cloud", "usable", peerObject.usable)
}
