//go:build linux && e2e && helm

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
)

// earlierReplacedWithin is how long nobody may answer while a gateway of an earlier version is
// replaced: v0.1.0 stops before Services notice, and a client that dials then waits for 30 s.
const earlierReplacedWithin = 90 * time.Second

// TestHelmSkew upgrades gateways from the chart and program of an earlier version to this one and
// back, with the same values, while they are in use.
func TestHelmSkew(t *testing.T) {
	for _, older := range olderPrograms(t) {
		t.Run(older.version, func(t *testing.T) {
			chart := filepath.Join(filepath.Dir(older.path), "chart")
			if _, err := os.Stat(chart); err != nil {
				t.Fatalf("`make older` has left no chart: %v", err)
			}
			archive := filepath.Join(tempDir(t), "older.tar")
			if _, err := scratch.WriteFile(archive, scratch.Image{Name: "localhost/postern:" + older.version, Platforms: []scratch.Platform{
				{Arch: runtime.GOARCH, Programs: map[string]string{"/postern": older.path}, Entrypoint: "/postern"}}}); err != nil {
				t.Fatal(err)
			}
			s := startClusterset(t, netip.Prefix{}, []string{archive}, "edge", "cloud")
			c := &clusters{edge: s.edge, cloud: s.cloud, nat: s.nat}
			c.edge.restricted(tenant)
			c.cloud.restricted(tenant)
			image := "image.tag=" + older.version
			c.cloud.helmUpgrade(release, gatewayNamespace, chart, "--reset-values", append(c.cloudValues(), image)...)
			c.edge.helmUpgrade(release, gatewayNamespace, chart, "--reset-values", append(c.edgeValues(), image)...)
			for one := range c.both() {
				one.waitRollout(release, gatewayNamespace)
			}
			c.edge.join("cloud", c.cloud.invite("edge", "name: edge"), "allow: [auth, apiServer]")
			for one, other := range c.both() {
				one.waitPeer(other.name, "usable", peerObject.usable)
			}
			testPods(t, c)
			for _, replicas := range []string{"replicas=1", "replicas=2"} {
				for one := range c.both() { // the earlier ones, too
					one.helmUpgrade(release, gatewayNamespace, chart, "--reuse-values", image, replicas)
					one.waitRollout(release, gatewayNamespace)
				}
				onTime(t, func(late lateness) {
					for one := range c.both() {
						c.rolled(t, late, earlierReplacedWithin, "upgrade to this version, "+replicas, one, func() {
							one.helmUpgrade(release, gatewayNamespace, chartFolder, "--reuse-values", replicas)
						})
					}
					for one := range c.both() {
						c.rolled(t, late, replacedWithin, "rollback from it, "+replicas, one, one.rollback)
					}
				})
			}
		})
	}
}
