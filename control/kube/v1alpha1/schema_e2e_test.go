//go:build linux && e2e

package v1alpha1

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

const (
	patience = 90 * time.Second
	aKey     = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// objects applies manifests to a real API server.
type objects struct {
	t       *testing.T
	cluster kubetest.Cluster
}

func (o objects) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return o.cluster.Kubectl(ctx, stdin, args...)
}

func (o objects) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return o.cluster.Run(t, stdin, args...)
}

func manifest(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: postern.dev/v1alpha1\nkind: %s\nmetadata: {name: %q, namespace: default}\nspec: %s\n", kind, name, spec)
}

func peerSpec(fields string) string { return "{publicKey: '" + aKey + "', " + fields + "}" }

func TestDefinitionsInARealCluster(t *testing.T) {
	c := kubetest.Start(t)
	o := objects{t, c}
	if out := c.Define(t); strings.Contains(out, "Warning") {
		t.Errorf("the API server warns: %s", out)
	}
	// A schema that is not structural, or rules that cost too much, would appear as a condition.
	for _, crd := range []string{"peers", "tickets"} {
		if out := o.must(t, "", "get", "crd", crd+".postern.dev", "-o", "jsonpath={.status.conditions[?(@.type=='NonStructuralSchema')]}"); out != "" {
			t.Errorf("%s: %s", crd, out)
		}
	}
	t.Run("accepted", o.accepted)
	t.Run("refused", o.refused)
	t.Run("changed", o.changed)
	t.Run("only those who may", o.rights)
}

func (o objects) accepted(t *testing.T) {
	for name, m := range map[string]string{
		"the least":        manifest("Peer", "cloud", peerSpec("")),
		"the longest name": manifest("Peer", strings.Repeat("a", 40), peerSpec("")),
		"everything": manifest("Peer", "cloud", peerSpec(`presharedKeySecretRef: {name: keys, key: psk}, allow: [auth, apiServer, registry], mode: OutOfBand,
  endpoints: ['198.51.100.7:51820', '[2001:db8::7]:51820', 'gw.example.net:51820'],
  outOfBand: {authURL: 'https://auth.example.net:8443', apiServerURL: 'https://198.51.100.7:6443', caSecretRef: {name: ca, key: ca.crt}, tokenSecretRef: {name: token, key: token}},
  local: {apiServer: '127.0.0.1:7443', named: {registry: '[::1]:5000'}}`)),
		"a stock peer":       manifest("Peer", "router", peerSpec("stock: true, allow: [apiServer], allowedIPs: [10.9.0.2, 10.8.0.0/24, '2001:db8::/64']")),
		"one that waits":     manifest("Peer", "cloud", peerSpec("pending: true")),
		"an invitation":      manifest("Ticket", "cloud", "{invite: {}}"),
		"a full invitation":  manifest("Ticket", "cloud", "{invite: {name: cloud, ttl: 1h30m, for: '"+aKey+"', allow: [], approve: true}}"),
		"a join":             manifest("Ticket", "cloud", "{join: {secretRef: {name: a, key: b}, name: cloud, allow: [auth]}}"),
		"the longest ticket": manifest("Ticket", "cloud", "{invite: {ttl: 720h}}"),
	} {
		if out, err := o.kubectl(t, m, "apply", "--dry-run=server", "-f", "-"); err != nil {
			t.Errorf("%s: %v%s", name, err, out)
		}
	}
}

func (o objects) refused(t *testing.T) {
	for _, c := range []struct{ manifest, want string }{
		{manifest("Peer", strings.Repeat("a", 41), peerSpec("")), "metadata.name is the peer's name, a DNS label of at most 40 characters"},
		{manifest("Peer", "a.b", peerSpec("")), "metadata.name is the peer's name"},
		{manifest("Peer", "cloud", "{allow: [auth]}"), "spec.publicKey: Required"},
		{manifest("Peer", "cloud", "{publicKey: 'short'}"), "publicKey must be 32 bytes in base64, 44 characters: copy it from `postern key pub`"},
		{manifest("Peer", "cloud", "{publicKey: 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9='}"), "publicKey must be 32 bytes"},
		{manifest("Peer", "cloud", "{publicKey: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='}"), "publicKey is all zero"},
		{manifest("Peer", "cloud", peerSpec("endpoints: ['198.51.100.7']")), "an endpoint is ip:port or host:port"},
		{manifest("Peer", "cloud", peerSpec("endpoints: ['https://gw.example.net:1']")), "an endpoint is ip:port or host:port"},
		{manifest("Peer", "cloud", peerSpec("endpoints: ['gw.example.net:0']")), "an endpoint is ip:port or host:port"},
		{manifest("Peer", "cloud", peerSpec("mode: Sideways")), `supported values: "InBand", "OutOfBand"`},
		{manifest("Peer", "cloud", peerSpec("mode: OutOfBand")), "mode OutOfBand needs outOfBand.authURL and outOfBand.apiServerURL"},
		{manifest("Peer", "cloud", peerSpec("mode: OutOfBand, outOfBand: {authURL: 'https://a:1'}")), "mode OutOfBand needs outOfBand.authURL and outOfBand.apiServerURL"},
		{manifest("Peer", "cloud", peerSpec("outOfBand: {authURL: 'http://a:1'}")), "authURL must be https://host:port"},
		{manifest("Peer", "cloud", peerSpec("outOfBand: {authURL: 'https://user:pass@a:1'}")), "a token goes into the Secret of tokenSecretRef"},
		{manifest("Peer", "cloud", peerSpec("outOfBand: {apiServerURL: '10.0.0.1:6443'}")), "apiServerURL must be https://host:port"},
		{manifest("Peer", "cloud", peerSpec("outOfBand: {ca: 'nonsense'}")), "ca must be PEM certificates"},
		{manifest("Peer", "cloud", peerSpec("outOfBand: {ca: '-----BEGIN CERTIFICATE-----', caSecretRef: {name: a, key: b}}")), "not both"},
		{manifest("Peer", "cloud", peerSpec("allow: ['API Server']")), "a service is auth, apiServer, or the name of one in spec.services.named"},
		{manifest("Peer", "cloud", peerSpec("allow: [auth, auth]")), "Duplicate value"},
		{manifest("Peer", "cloud", peerSpec("local: {apiServer: '7443'}")), "local.apiServer must be ip:port"},
		{manifest("Peer", "cloud", peerSpec("local: {named: {registry: 'localhost'}}")), "local.named maps names of services to ip:port"},
		{manifest("Peer", "cloud", peerSpec("local: {named: {'Not A Name': '127.0.0.1:1'}}")), "local.named maps names of services to ip:port"},
		{manifest("Peer", "cloud", peerSpec("services: {export: [shop, 'Shop']}")), "a namespace, such as shop, or a pattern of them"},
		{manifest("Peer", "cloud", peerSpec("stock: true, allowedIPs: [10.9.0.2], services: {import: [shop]}")), "remove services"},
		{manifest("Peer", "cloud", peerSpec("stock: true")), "a stock WireGuard peer needs allowedIPs"},
		{manifest("Peer", "cloud", peerSpec("allowedIPs: [10.9.0.2]")), "allowedIPs are only for stock peers"},
		{manifest("Peer", "cloud", peerSpec("stock: true, allowedIPs: [10.9.0.2/24]")), "with no bits set beyond the prefix length"},
		{manifest("Peer", "cloud", peerSpec("stock: true, allowedIPs: [somewhere]")), "allowedIPs holds addresses such as"},
		{manifest("Peer", "cloud", peerSpec("stock: true, allowedIPs: [10.9.0.2], allow: [auth]")), "remove auth from allow"},
		{manifest("Peer", "cloud", peerSpec("stock: true, allowedIPs: [10.9.0.2], local: {apiServer: '127.0.0.1:1'}")), "remove local and outOfBand"},
		{manifest("Peer", "cloud", peerSpec("stock: true, allowedIPs: [10.9.0.2], outOfBand: {authURL: 'https://a:1'}")), "remove local and outOfBand"},
		{manifest("Peer", "cloud", peerSpec("presharedKeySecretRef: {name: keys}")), "presharedKeySecretRef.key: Required"},
		{manifest("Peer", "cloud", peerSpec("presharedKey: secret")), "unknown field"},
		{manifest("Ticket", "cloud", "{}"), "a Ticket either invites or joins"},
		{manifest("Ticket", "cloud", "{invite: {}, join: {secretRef: {name: a, key: b}}}"), "a Ticket either invites or joins"},
		{manifest("Ticket", strings.Repeat("a", 41), "{invite: {}}"), "a DNS label of at most 40 characters"},
		{manifest("Ticket", "cloud", "{invite: {ttl: 30s}}"), "ttl must be a duration from 1m to 720h"},
		{manifest("Ticket", "cloud", "{invite: {ttl: 721h}}"), "ttl must be a duration from 1m to 720h"},
		{manifest("Ticket", "cloud", "{invite: {ttl: tomorrow}}"), "ttl must be a duration from 1m to 720h"},
		{manifest("Ticket", "cloud", "{invite: {name: 'Not A Name'}}"), "name must be a DNS label"},
		{manifest("Ticket", "cloud", "{invite: {for: me}}"), "for must be a public key"},
		{manifest("Ticket", "cloud", "{invite: {allow: ['API Server']}}"), "a service is auth, apiServer"},
		{manifest("Ticket", "cloud", "{join: {}}"), "secretRef: Required"},
		{manifest("Ticket", "cloud", "{join: {secretRef: {name: a, key: b}, name: 'Not A Name'}}"), "name must be a DNS label"},
		{manifest("Ticket", "cloud", "{join: {secretRef: {name: a, key: b}, allow: ['API Server']}}"), "a service is auth, apiServer"},
		{manifest("Ticket", "cloud", "{invite: {ticket: postern1secret}}"), "unknown field"},
	} {
		out, err := o.kubectl(t, c.manifest, "apply", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%sgot %v %s, want it refused with %q", c.manifest, err, out, c.want)
		}
	}
}

func (o objects) changed(t *testing.T) {
	o.must(t, manifest("Peer", "cloud", peerSpec("")), "apply", "-f", "-")
	if got := o.must(t, "", "get", "peer", "cloud", "-o", "jsonpath={.spec.mode} {.spec.stock} {.spec.pending}"); got != "InBand false false" {
		t.Errorf("the defaults are %q", got)
	}
	if got := o.must(t, "", "get", "peer", "cloud", "-o", "jsonpath={range .status.conditions[*]}{.type}={.status} {end}"); got != "Accepted=Unknown Ready=Unknown" {
		t.Errorf("before a gateway has looked at it the conditions are %q", got)
	}
	if _, err := o.kubectl(t, "", "patch", "peer", "cloud", "--type=merge", `-p={"spec":{"pending":true}}`); err == nil || !strings.Contains(err.Error(), "delete it to keep it out") {
		t.Errorf("a peer that was let in becomes pending: %v", err)
	}
	o.must(t, "", "patch", "peer", "cloud", "--type=merge", `-p={"spec":{"publicKey":"`+strings.Replace(aKey, "AAEC", "BBEC", 1)+`"}}`)
	o.must(t, manifest("Ticket", "cloud", "{invite: {}}"), "apply", "-f", "-")
	if got := o.must(t, "", "get", "ticket", "cloud", "-o", "jsonpath={.spec.invite.allow}"); got != `["auth","apiServer"]` {
		t.Errorf("an invitation allows %s", got)
	}
	if _, err := o.kubectl(t, "", "patch", "ticket", "cloud", "--type=merge", `-p={"spec":{"invite":{"allow":["registry"]}}}`); err == nil || !strings.Contains(err.Error(), "delete it, which revokes an open invitation") {
		t.Errorf("a Ticket is changed: %v", err)
	}
	head, _, _ := strings.Cut(o.must(t, "", "get", "tickets"), "\n")
	if got := fmt.Sprint(strings.Fields(head)); got != "[NAME PHASE PEER SECRET EXPIRES AGE]" {
		t.Errorf("the columns of tickets are %s", got)
	}
}

// The built-in roles grant nothing here: the chart adds the aggregated ones.
func (o objects) rights(t *testing.T) {
	o.must(t, "", "create", "rolebinding", "dev", "--clusterrole=edit", "--user=dev")
	for _, resource := range []string{"peers.postern.dev", "tickets.postern.dev"} {
		for _, verb := range []string{"create", "get", "delete"} {
			if out, err := o.kubectl(t, "", "auth", "can-i", verb, resource, "-n", "default", "--as=dev"); err == nil {
				t.Errorf("a user with the role edit may %s %s: %s", verb, resource, out)
			}
		}
	}
}
