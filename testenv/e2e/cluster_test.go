//go:build linux && e2e

package e2e

import (
	"testing"
)

// TestClusters is what people do with real clusters: install the chart, hand a ticket
// over, and use the other cluster from a pod. The clusters are shared by what follows, in
// order, since each takes ten seconds to start and half a gigabyte.
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
	step("rights", testRights)
	step("key from a Secret", func(t *testing.T, c *clusters) { testBroughtKey(t, c, branchKey) })
	step("peering by ticket", testPeering)
	step("rest", testPodAtRest)
	step("pods", testPods)
	step("screen of both", testScreen)
	// What takes minutes of waiting, at a time: nothing of it disturbs cloud's gateway.
	t.Run("meanwhile", func(t *testing.T) {
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
	step("rotation", testRotation)
	step("active pod deleted", testActivePodDeleted)
	step("upgrade", testUpgrade)
	step("wrong things", testWrongThings)
	step("certificates", testCertificates)
	step("remove", testRemove)
	step("uninstall", testUninstall)
}
