//go:build linux && e2e

package e2e

import (
	"testing"
)

// TestClusters does what people do with real clusters: install the chart, hand over a ticket, and
// use the other cluster from a pod. The subtests share the clusters, in order, since each cluster
// takes ten seconds to start and half a gigabyte. With -short it is only the essential part,
// which is also run with other versions of Kubernetes and helm.
func TestClusters(t *testing.T) {
	c := newClusters(t)
	for _, one := range []*cluster{c.cloud, c.edge, c.branch} {
		one.restricted(tenant)
	}
	c.cloud.install(release, gatewayNamespace, c.cloudValues()...)
	c.edge.install(release, gatewayNamespace, c.edgeValues()...)
	branchKey := c.branch.bringKey("branch-key")
	c.branch.install(release, gatewayNamespace, append(c.edgeValues(), "key.existingSecret=branch-key", "key.key=wireguard")...)
	step := func(name string, test func(*testing.T, *clusters)) {
		t.Run(name, func(t *testing.T) { test(t, c.as(t)) })
	}
	further := func(name string, test func(*testing.T, *clusters)) {
		step(name, func(t *testing.T, c *clusters) {
			if testing.Short() {
				t.Skip("not essential")
			}
			test(t, c)
		})
	}
	step("rights", testRights)
	step("key from a Secret", func(t *testing.T, c *clusters) { testBroughtKey(t, c, branchKey) })
	step("peering by ticket", testPeering)
	further("rest", testPodAtRest)
	step("pods", testPods)
	step("screen of both", testScreen)
	// Tests that wait for minutes run in parallel; none of them disturbs cloud's gateway.
	further("meanwhile", func(t *testing.T, c *clusters) {
		for name, test := range map[string]func(*testing.T, *clusters){
			"use from pods": testUse, "own API server away": testOwnAPIServerAway,
			"label": testLabel, "edit cannot invite": testEditCannotInvite, "fleet": testFleet,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c.as(t))
			})
		}
	})
	further("rotation", testRotation)
	step("active pod deleted", testActivePodDeleted)
	step("upgrade", testUpgrade)
	further("wrong things", testWrongThings)
	further("certificates", testCertificates)
	step("remove", testRemove)
	step("uninstall", testUninstall)
}
