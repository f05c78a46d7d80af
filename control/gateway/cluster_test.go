package gateway_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/tunnel/peer"
)

// inCluster has cloud live in a cluster.
func inCluster(site string, o *gateway.Options) {
	if site == "cloud" {
		cfg := *o.Config
		cfg.Kubernetes = &config.Kubernetes{Release: "postern", Service: "postern"}
		o.Config = &cfg
	}
}

func TestPeersOfTheClusterComeAndGo(t *testing.T) {
	w := newWorld(t, inCluster)
	var changes atomic.Int64
	w.Cloud.Gateway.OnChange(func() { changes.Add(1) })
	set := func(peers ...config.Peer) {
		t.Helper()
		if err := w.Cloud.Gateway.SetPeers(w.ctx, peers); err != nil {
			t.Fatal(err)
		}
	}
	other := config.Peer{Name: "other", PublicKey: newKey(t).Public(), Allow: both}
	set(other)
	if p, there := w.status(w.Cloud, "other"); !there || !slices.Equal(p.Allow, both) {
		t.Errorf("the cluster's peer is shown as %+v", p)
	}
	if changes.Load() == 0 {
		t.Error("nobody was told of the new peer")
	}
	err := w.Cloud.Gateway.PeerAllow(w.ctx, "other", api.PeerAllowRequest{})
	if err == nil || !strings.Contains(err.Error(), "kubectl edit peers.postern.dev other") {
		t.Errorf("a command may change what a Peer object says, or does not say how it is changed: %v", err)
	}
	set()
	if _, there := w.status(w.Cloud, "other"); there {
		t.Error("a peer without an object is there still")
	}
}

// A peer that joined is what its object says, and its object alone makes no peer.
func TestTheObjectOfAJoinedPeerHasItsOptions(t *testing.T) {
	w := newWorld(t, inCluster)
	w.peer()
	status, err := w.Edge.Gateway.Status(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	key, err := peer.ParsePublicKey(status.Gateway.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	edge := config.Peer{Name: "edge", PublicKey: key, Joined: true, Allow: []string{api.ServiceAuth}}
	set := func() {
		t.Helper()
		if err := w.Cloud.Gateway.SetPeers(w.ctx, []config.Peer{edge}); err != nil {
			t.Fatal(err)
		}
	}
	allowed := func() []string { p, _ := w.status(w.Cloud, "edge"); return p.Allow }
	set()
	if got := allowed(); !slices.Equal(got, edge.Allow) {
		t.Errorf("the object allows %v, and the peer may reach %v", edge.Allow, got)
	}
	edge.Allow = nil
	set()
	if got := allowed(); len(got) > 0 {
		t.Errorf("the object allows nothing, and the peer may reach %v", got)
	}
	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
		t.Fatal(err)
	}
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("a removed peer's object keeps it a peer")
	}
}
