//go:build linux && e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

// bringKey creates a Secret with a private key, as an operator might before installing the chart,
// and returns the public key.
func (c *cluster) bringKey(secret string) string {
	c.t.Helper()
	key, err := peer.NewPrivateKey()
	if err != nil {
		c.t.Fatal(err)
	}
	c.restricted(gatewayNamespace)
	c.kubectl("create", "secret", "generic", secret, "-n", gatewayNamespace, "--from-literal=wireguard="+key.Base64())
	return key.Public().String()
}

// testBroughtKey: branch's gateway uses the key of the Secret given to the chart, and stores no
// other.
func testBroughtKey(t *testing.T, c *clusters, want string) {
	if got := c.branch.gatewayStatus().Gateway.PublicKey; got != want {
		t.Errorf("branch's public key is %q, want %q", got, want)
	}
	if kept := c.branch.kubectl("get", "secret", "-n", gatewayNamespace, release+"-state-key", "-o", "jsonpath={.data}"); kept != "" {
		t.Error("branch keeps a key besides")
	}
	if out, err := c.branch.postern("key", "rotate"); err == nil || !strings.Contains(err.Error(), "not the gateway's to change") {
		t.Errorf("key rotate says %v: %s", err, out)
	}
}
