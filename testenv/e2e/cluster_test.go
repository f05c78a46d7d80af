//go:build linux && e2e

package e2e

import (
	"testing"
)

// TestClusters is what people do with two real clusters: install the chart into both, hand
// a ticket over, and use the other cluster from a pod. The clusters are shared by what
// follows, in order, since each takes ten seconds to start and a gigabyte with its pods.
func TestClusters(t *testing.T) {
	c := newClusters(t)
	for _, one := range []*cluster{c.cloud, c.edge} {
		one.restricted(tenant)
	}
	c.cloud.install(release, gatewayNamespace, c.cloudValues()...)
	c.edge.install(release, gatewayNamespace, c.edgeValues()...)
	for _, s := range []struct {
		name string
		test func(*testing.T, *clusters)
	}{
		{"rights", testRights},
		{"peering by ticket", testPeering},
		{"use from pods", testUse},
		{"label", testLabel},
		{"edit cannot invite", testEditCannotInvite},
		{"rest", testPodAtRest},
		{"own API server away", testOwnAPIServerAway},
		{"active pod deleted", testActivePodDeleted},
		{"upgrade", testUpgrade},
		{"remove", testRemove},
		{"uninstall", testUninstall},
	} {
		t.Run(s.name, func(t *testing.T) {
			s.test(t, &clusters{edge: c.edge.as(t), cloud: c.cloud.as(t), nat: c.nat})
		})
	}
}
