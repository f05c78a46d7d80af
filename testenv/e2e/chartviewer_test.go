//go:build linux && e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestChartLetsViewersSeePeersAlone: the chart's aggregated cluster role allows viewing Peers,
// and nothing else unless that is enabled: a peer may have the role view.
func TestChartLetsViewersSeePeersAlone(t *testing.T) {
	c := newChart(t)
	for value, want := range map[string]int{"rbac.viewPeers=true": 1, "rbac.viewPeers=false": 0, "issuer.access[0].clusterRole=view": 0} {
		found := 0
		for name, o := range c.objects("name=edge", value) {
			labels := fmt.Sprint(at(o, "metadata", "labels"))
			if !strings.HasPrefix(name, "ClusterRole ") || !strings.Contains(labels, "aggregate-to") {
				continue
			}
			found++
			if !strings.Contains(labels, "rbac.authorization.k8s.io/aggregate-to-view:true") || strings.Count(labels, "aggregate-to") != 1 {
				t.Errorf("%s is aggregated by labels %s, want to view alone", name, labels)
			}
			const want = "[map[apiGroups:[postern.dev] resources:[peers] verbs:[get list watch]]]"
			if got := fmt.Sprint(at(o, "rules")); got != want {
				t.Errorf("%s grants %s, want %s", name, got, want)
			}
		}
		if found != want {
			t.Errorf("%s: %d roles are aggregated, want %d", value, found, want)
		}
	}
	if out, err := c.template(nil, "name=edge", "rbac.viewPeers=perhaps"); err == nil || !strings.Contains(err.Error(), "'/rbac/viewPeers'") {
		t.Errorf("a wrong value: got %v, want it named\n%s", err, out)
	}
}
