//go:build linux && e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// peeredWithin is how long two clusters may take from the ticket's arrival until both say that
// they are connected.
const peeredWithin = 20 * time.Second

// podRange contains the pod addresses of each cluster.
var podRange = netip.MustParsePrefix("10.244.0.0/16")

// peerObject is the part of a Peer that tests read.
type peerObject struct {
	Metadata struct {
		Name, UID string
	}
	Spec struct {
		PublicKey string
		Allow     []string
	}
	Status struct {
		State, Auth, APIServer, Code string
		Path                         struct{ Kind, Remote string }
		Identity                     struct{ NotAfter time.Time }
		Conditions                   []struct{ Type, Status, Reason, Message string }
	}
}

// ticketObject is the part of a Ticket that tests read.
type ticketObject struct {
	Status struct {
		Phase, Peer, Message string
		SecretRef            struct{ Name, Key string }
	}
}

// waitObject watches one object until ok accepts it.
func waitObject[T any](c *cluster, path, name, what string, ok func(T) bool) T {
	c.t.Helper()
	var last T
	err := c.WaitFor(within(c.t, patience), path+"?fieldSelector=metadata.name%3D"+name, func(b []byte) bool {
		var o T
		if json.Unmarshal(b, &o) != nil {
			return false
		}
		last = o
		return ok(o)
	})
	if err != nil {
		c.t.Fatalf("%s: %s is not %s: %v", c.name, name, what, err)
	}
	return last
}

// ownObjects returns the path of the gateway's own objects of a kind.
func ownObjects(plural string) string {
	return "/apis/postern.dev/v1alpha1/namespaces/" + gatewayNamespace + "/" + plural
}

func (c *cluster) waitTicket(name, what string, ok func(ticketObject) bool) ticketObject {
	c.t.Helper()
	return waitObject(c, ownObjects("tickets"), name, what, ok)
}

func (c *cluster) waitPeer(name, what string, ok func(peerObject) bool) peerObject {
	c.t.Helper()
	return waitObject(c, ownObjects("peers"), name, what, ok)
}

// secret reads a value of a Secret in the gateway's namespace.
func (c *cluster) secret(name, key string) string {
	c.t.Helper()
	var o struct{ Data map[string]string }
	c.object(&o, "secret", "-n", gatewayNamespace, name)
	b, err := base64.StdEncoding.DecodeString(o.Data[key])
	if err != nil || len(b) == 0 {
		c.t.Fatalf("%s: Secret %s has no %s: %v", c.name, name, key, err)
	}
	return string(b)
}

// invite creates a ticket by an object, and returns its text.
func (c *cluster) invite(name, spec string) string {
	c.t.Helper()
	c.apply(fmt.Sprintf("apiVersion: postern.dev/v1alpha1\nkind: Ticket\nmetadata: {name: %s}\nspec: {invite: {%s}}\n", name, spec),
		"apply", "-n", gatewayNamespace, "-f", "-")
	open := c.waitTicket(name, "open", func(o ticketObject) bool { return o.Status.Phase == "Open" && o.Status.SecretRef.Name != "" })
	return c.secret(open.Status.SecretRef.Name, open.Status.SecretRef.Key)
}

// join redeems a ticket by objects.
func (c *cluster) join(name, ticket, spec string) {
	c.t.Helper()
	c.apply(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %[1]s-text, labels: {postern.dev/use: ticket}}
stringData: {ticket: %[2]q}
---
apiVersion: postern.dev/v1alpha1
kind: Ticket
metadata: {name: %[1]s}
spec: {join: {secretRef: {name: %[1]s-text, key: ticket}, %[3]s}}
`, name, ticket, spec), "apply", "-n", gatewayNamespace, "-f", "-")
}

// testPeering hands a ticket from cloud to edge and waits until each side shows the other as
// connected.
func testPeering(t *testing.T, c *clusters) {
	ticket := c.cloud.invite("edge", "name: edge")
	start := time.Now()
	c.edge.join("cloud", ticket, "allow: [auth, apiServer]")
	for one, other := range c.both() {
		p := one.waitPeer(other.name, "connected", func(p peerObject) bool { return p.Status.State == "connected" })
		if p.Status.Path.Kind != "direct" {
			t.Errorf("%s reaches %s by path %+v, want a direct one", one.name, other.name, p.Status.Path)
		}
	}
	late(t, "both are connected", time.Since(start), peeredWithin)
	for one, other := range c.both() {
		p := one.waitPeer(other.name, "usable", func(p peerObject) bool {
			return p.Status.Auth == "ok" && p.Status.APIServer == "ok" && p.Status.Identity.NotAfter.After(time.Now())
		})
		for _, condition := range []string{"Accepted", "Ready", "TunnelReady", "AuthReachable", "APIServerReachable", "IdentityIssued"} {
			if !p.has(condition, "True") {
				t.Errorf("%s: %s is not True of %s: %+v", one.name, condition, other.name, p.Status.Conditions)
			}
		}
		shown := strings.Fields(one.kubectl("get", "peers", "-n", gatewayNamespace, "--no-headers"))
		if len(shown) < 8 || !slices.Equal(shown[:4], []string{other.name, "InBand", "connected", "direct"}) || !slices.Equal(shown[5:7], []string{"ok", "ok"}) {
			t.Errorf("%s: kubectl get peers shows %q", one.name, shown)
		}
	}
	for one := range c.both() {
		for _, candidate := range one.gatewayStatus().Gateway.Candidates {
			if a, err := netip.ParseAddrPort(candidate.Address); err == nil && podRange.Contains(a.Addr()) {
				t.Errorf("%s announces the address of its pod, %+v", one.name, candidate)
			}
		}
	}
	t.Logf("identities are there and everything is reachable after %v", time.Since(start).Round(100*time.Millisecond))
	if joined := c.edge.waitTicket("cloud", "joined", func(o ticketObject) bool { return o.Status.Phase == "Joined" }); joined.Status.Peer != "cloud" {
		t.Errorf("the joined Ticket names peer %q, want cloud", joined.Status.Peer)
	}
	c.cloud.waitTicket("edge", "redeemed", func(o ticketObject) bool { return o.Status.Phase == "Redeemed" && o.Status.Peer == "edge" })
}

func (p peerObject) has(condition, status string) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == condition {
			return c.Status == status
		}
	}
	return false
}

// usable reports whether the peer is connected and its API server answers.
func (p peerObject) usable() bool {
	return p.Status.State == "connected" && answers(p.Status.APIServer, "APIServerReachable", p)
}

// answers reports whether a service of a peer answers, by its verdict and condition. Of one whose
// gateway was replaced repeatedly it is right to say for a while that it comes and goes.
func answers(verdict, condition string, p peerObject) bool {
	return verdict == "ok" || verdict == "warning" && slices.ContainsFunc(p.Status.Conditions, func(c struct{ Type, Status, Reason, Message string }) bool {
		return c.Type == condition && c.Reason == "Intermittent"
	})
}

// both returns the two clusters, each with the other.
func (c *clusters) both() map[*cluster]*cluster {
	return map[*cluster]*cluster{c.edge: c.cloud, c.cloud: c.edge}
}
