//go:build linux && e2e

package e2e

import (
	"fmt"
	"testing"
)

// TestClusters is what people do with two real clusters: install the chart into both, hand
// a ticket over, and use the other cluster from a pod. The clusters are shared by what
// follows, in order, since each takes ten seconds to start and a gigabyte with its pods.
func TestClusters(t *testing.T) {
	c := newClusters(t)
	c.cloud.install(release, gatewayNamespace, "service.type=NodePort", fmt.Sprintf("service.nodePort=%d", cloudNodePort))
	c.edge.install(release, gatewayNamespace, "service.type=ClusterIP")
	for _, s := range []struct {
		name string
		test func(*testing.T, *clusters)
	}{
		{"a pod at rest is small", testPodAtRest},
	} {
		if !t.Run(s.name, func(t *testing.T) {
			s.test(t, &clusters{edge: c.edge.as(t), cloud: c.cloud.as(t), nat: c.nat})
		}) {
			return
		}
	}
}
