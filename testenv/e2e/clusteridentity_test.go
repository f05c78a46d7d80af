//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// outsideNodePort is the port of cloud's auth outside the tunnel.
const outsideNodePort = 30443

// identityThings are mistakes with edge's identity at cloud.
func identityThings() []wrongThing {
	return []wrongThing{
		{"a wrong token", func(c *clusters) {
			c.edge.goOutside(c.cloud.serveOutside())
			c.edge.useToken("nonsense", "nonsense")
		}, nil, "PST0222", []string{"does not accept the token", "peer token", "tokenSecretRef"}, "cloud"},
		{"an expired token", func(c *clusters) { c.edge.useToken("expired", c.cloud.expiredToken(c.edge)) },
			func(c *clusters) { c.edge.patchPeer("cloud", `{"spec":{"mode":"InBand","outOfBand":null}}`) },
			"PST0222", []string{"valid until", "peer token", "tokenSecretRef"}, "cloud"},
		{"a peer with another's name", func(c *clusters) {
			key := newPrivateKey(c.edge.t).Public().String()
			c.edge.patchPeer("cloud", fmt.Sprintf(`{"spec":{"publicKey":%q}}`, key))
		}, func(c *clusters) {
			c.edge.patchPeer("cloud", fmt.Sprintf(`{"spec":{"publicKey":%q}}`, c.cloud.privateKey().Public()))
		}, "PST0723", []string{"cloud", "joined with the key", "kubectl edit"}, "cloud"},
		{"a ticket for a name that is taken", func(c *clusters) {
			c.edge.waitTicket("taken", "given up", func(o ticketObject) bool {
				return o.Status.Phase == "Failed" && strings.Contains(o.Status.Message, "PST0726")
			})
		}, func(c *clusters) {
			for _, one := range []*cluster{c.edge, c.branch} {
				one.kubectl("delete", "ticket", "-n", gatewayNamespace, "taken")
			}
		}, "PST0726", []string{"there is a peer cloud with another key already", "spec.join.name", "kubectl delete"}, ""},
	}
}

// outside contains cloud's addresses outside the tunnel, for a Peer.
type outside struct{ authURL, apiServerURL, ca string }

// serveOutside makes the gateway's auth answer outside the tunnel as well.
func (c *cluster) serveOutside() outside {
	c.t.Helper()
	ca, err := pki.NewCA("outside")
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := ca.Server(cloudNode)
	if err != nil {
		c.t.Fatal(err)
	}
	cert, key, err := pair.Write(tempDir(c.t), "auth")
	if err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("create", "secret", "tls", "outside-text", "-n", gatewayNamespace, "--cert", cert, "--key", key)
	c.upgrade(release, gatewayNamespace, append((&clusters{}).cloudValues(),
		"outOfBand.enabled=true", "outOfBand.tlsSecret=outside-text", fmt.Sprintf("outOfBand.nodePort=%d", outsideNodePort))...)
	return outside{fmt.Sprintf("https://%s:%d", cloudNode, outsideNodePort), "https://" + c.Server().String(), string(ca.CertPEM())}
}

// goOutside makes the peer cloud be used outside the tunnel.
func (c *cluster) goOutside(o outside) {
	c.t.Helper()
	b, err := json.Marshal(map[string]any{"spec": map[string]any{"mode": "OutOfBand",
		"outOfBand": map[string]any{"authURL": o.authURL, "apiServerURL": o.apiServerURL, "ca": o.ca}}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.patchPeer("cloud", string(b))
}

// useToken presents a token to cloud's auth.
func (c *cluster) useToken(name, token string) {
	c.t.Helper()
	c.apply(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s-text, labels: {postern.dev/use: peer}}\nstringData: {token: %q}\n", name, token),
		"apply", "-n", gatewayNamespace, "-f", "-")
	c.patchPeer("cloud", fmt.Sprintf(`{"spec":{"outOfBand":{"tokenSecretRef":{"name":"%s-text","key":"token"}}}}`, name))
}

func (c *cluster) patchPeer(name, patch string) {
	c.t.Helper()
	c.kubectl("patch", "peer", "-n", gatewayNamespace, name, "--type=merge", "-p", patch)
}

// expiredToken returns a token that `postern peer token` printed here some time ago.
func (c *cluster) expiredToken(other *cluster) string {
	c.t.Helper()
	tokens, err := auth.NewDirectTokens(c.privateKey())
	if err != nil {
		c.t.Fatal(err)
	}
	old, _, err := tokens.Make(other.privateKey().Public(), time.Now().Add(-2*time.Hour), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(old)
}

// privateKey returns the gateway's private key.
func (c *cluster) privateKey() peer.PrivateKey {
	c.t.Helper()
	k, err := peer.ParsePrivateKey(strings.TrimSpace(c.secret(release+"-state-key", "private.key")))
	if err != nil {
		c.t.Fatal(err)
	}
	return k
}

// ownersApproval prevents the gateway from approving requests, as for a cluster whose owner
// checks each of them.
const ownersApproval = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner-approves}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [certificates.k8s.io], apiVersions: ["*"], operations: [UPDATE], resources: [certificatesigningrequests/approval]}
  validations:
  - expression: request.userInfo.username != '` + gatewayAccount + `'
    reason: Forbidden
    message: the owner approves
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner-approves}
spec: {policyName: owner-approves, validationActions: [Deny]}
`

// deniesRequests makes cloud's owner deny edge's requests, and then approve them.
func (c *clusters) deniesRequests() {
	cloud, edge, t := c.cloud, c.edge, c.cloud.t
	t.Helper()
	denied := wrongThing{code: "PST0525", words: []string{"edge", "KubectlDeny", "kubectl describe csr", "kubectl delete csr"}}
	eventually(within(t, identityReplacedWithin), t, "a request of edge's is denied", func() (bool, string) {
		_, _ = edge.postern("check", "cloud") // as a user would do: the token died with its account
		for name := range strings.FieldsSeq(cloud.kubectl("get", "csr", "-l", "postern.dev/peer=edge", "-o", "jsonpath={.items[*].metadata.name}")) {
			cloud.kubectl("certificate", "deny", name)
		}
		v, ok := cloud.verdict(denied.code, denied.words...)
		return ok, fmt.Sprintf("%+v", v)
	})
	cloud.waitVerdict(denied)
	cloud.waitEvent(denied.code)
	p := edge.waitPeer("cloud", "without an identity, and why", func(p peerObject) bool {
		for _, condition := range p.Status.Conditions {
			if (condition.Type == "IdentityIssued" || condition.Type == "APIServerReachable") && condition.Status == "False" && strings.HasPrefix(condition.Message, "PST") {
				return true
			}
		}
		return false
	})
	t.Logf("cloud denies the certificate, and edge says: %+v", p.Status.Conditions)
	cloud.apply(ownersApproval, "delete", "-f", "-")
	cloud.kubectl("delete", "csr", "-l", "postern.dev/peer=edge")
}
