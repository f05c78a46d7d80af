//go:build linux && e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// pair is a world with cloud and edge running, each of which offers its own blob service.
type pair struct {
	*world
	cloud, edge *gateway
}

// newPair starts both gateways, which do not know each other.
func newPair(t *testing.T, w *world, cloudConfig ...func(*api.GatewaySpec)) *pair {
	t.Helper()
	blobServer(t, w.cloud)
	blobServer(t, w.edge)
	return &pair{
		world: w,
		cloud: newGateway(t, w.cloud, "cloud", append(cloudConfig, offerBlob)...).start(),
		edge:  newGateway(t, w.edge, "edge", offerBlob).start(),
	}
}

// newPeers returns a pair that has enrolled, with cloud inviting. Each has a listener at
// blobLocal that leads to the other's blob service.
func newPeers(t *testing.T, w *world, cloudConfig ...func(*api.GatewaySpec)) *pair {
	t.Helper()
	p := newPair(t, w, cloudConfig...)
	enrol(p.cloud, p.edge,
		[]string{"--allow", "auth," + blobService},
		[]string{"--allow", blobService, "--local", blobService + "=" + blobLocal})
	p.cloud.must("peer", "local", "edge", blobService+"="+blobLocal)
	p.checkBlob(p.edge, "cloud")
	p.checkBlob(p.cloud, "edge")
	return p
}

// checkBlob waits until a gateway's local listener answers as the peer's service.
func (p *pair) checkBlob(g *gateway, peer string) {
	t := p.t
	t.Helper()
	ctx := within(t, patience)
	eventually(ctx, t, g.name+" reaches the blob service of "+peer, func() (bool, string) {
		got, err := fetch(ctx, g.host, "http://"+blobLocal+"/")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(got, "blob of "+peer), got
	})
}
