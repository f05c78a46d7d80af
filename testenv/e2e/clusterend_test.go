//go:build linux && e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// cloudValues are the chart values of cloud.
func (c *clusters) cloudValues() []string {
	return append([]string{"service.type=NodePort", fmt.Sprintf("service.nodePort=%d", cloudNodePort), "rbac.viewPeers=true"}, accessToTenant...)
}

// edgeValues are edge's: it is behind a NAT and dials, so it is not exposed.
func (c *clusters) edgeValues() []string {
	return append([]string{"service.type=ClusterIP"}, accessToTenant...)
}

// testRemove removes the peering on both sides. The Service, Secret, NetworkPolicy and account of
// each peer go with it.
func testRemove(t *testing.T, c *clusters) {
	for one, other := range c.both() {
		one.kubectl("delete", "peer", "-n", gatewayNamespace, other.name, "--timeout="+patience.String())
	}
	for one, other := range c.both() {
		eventually(within(t, patience), t, "nothing of "+other.name+" is left at "+one.name, func() (bool, string) {
			left := one.kubectl("get", "peers,services,secrets,networkpolicies", "-n", gatewayNamespace, "-o", "name",
				"-l", "postern.dev/peer="+other.name) + one.accountUIDs()
			return left == "", left
		})
	}
}

// testUninstall peers the clusters again and uninstalls first cloud and then edge, which no longer
// has a peer to notify.
func testUninstall(t *testing.T, c *clusters) {
	ticket := c.cloud.invite("again", "name: edge")
	c.edge.join("again", ticket, "allow: [auth, apiServer]")
	c.edge.waitTicket("again", "joined", func(o ticketObject) bool { return o.Status.Phase == "Joined" })
	for one, other := range c.both() {
		one.waitPeer(other.name, "usable", peerObject.usable)
	}
	c.cloud.uninstall()
	c.edge.uninstall()
}

// uninstall removes the release, then the definitions, and checks that its namespace only has
// what tests and Kubernetes itself have created.
func (c *cluster) uninstall() {
	c.t.Helper()
	c.kubectl("delete", "pods", "-n", gatewayNamespace, "-l", "!app.kubernetes.io/name", "--wait=false")
	start := time.Now()
	if _, err := c.Helm(within(c.t, 2*patience), c.helm, "uninstall", release, "-n", gatewayNamespace, "--wait", "--timeout="+patience.String()); err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("delete", "crd", "peers.postern.dev", "tickets.postern.dev") // they stay otherwise, with all Peers and Tickets
	eventually(within(c.t, patience), c.t, "nothing is left in "+c.name, func() (bool, string) {
		left := c.leftovers()
		return left == "", left
	})
	c.t.Logf("%s: all is gone %v after helm uninstall began", c.name, time.Since(start).Round(100*time.Millisecond))
}

// leftovers lists the gateway's objects, by any of its labels.
func (c *cluster) leftovers() string {
	c.t.Helper()
	var left []string
	for _, line := range strings.Split(c.kubectl("get", "all,secrets,configmaps,serviceaccounts,roles,rolebindings,leases,networkpolicies,poddisruptionbudgets",
		"-n", gatewayNamespace, "-o", "name"), "\n") {
		switch line {
		case "", "serviceaccount/default", "configmap/kube-root-ca.crt":
		default:
			if !strings.HasSuffix(line, "-text") { // created by the tests
				left = append(left, line)
			}
		}
	}
	for _, all := range []string{"namespaces", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"customresourcedefinitions", "roles -n kube-public", "rolebindings -n kube-public"} {
		for _, name := range strings.Fields(c.kubectl(append([]string{"get", "-o", "name"}, strings.Fields(all)...)...)) {
			if strings.Contains(name, "postern") && name != "namespace/"+gatewayNamespace {
				left = append(left, name)
			}
		}
	}
	return strings.Join(left, " ")
}
