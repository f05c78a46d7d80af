package gateway_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/tunnel/underlay"
)

func TestAStartThatFailsLeavesNothingOpen(t *testing.T) {
	w := newWorld(t)
	site := w.Cloud
	cfg, err := config.Load(site.File, config.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	metrics := freeAddress(t)
	start := func(change func(*config.Resolved)) error {
		t.Helper()
		c := *cfg
		c.StateDir, c.HTTPAddress = filepath.Join(t.TempDir(), "state"), metrics
		change(&c)
		g, err := gateway.Start(w.ctx, gateway.Options{Config: &c, NewUnderlay: func(o underlay.Options) *underlay.Bind {
			return underlay.NewPacket(func(port uint16) (underlay.PacketConn, error) { return site.Host.ListenUDP(port) }, o)
		}})
		if err == nil {
			if err := g.Close(w.ctx); err != nil {
				t.Error(err)
			}
		}
		return err
	}
	taken, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := func(c *config.Resolved) { c.ListenPort = 0 }
	for _, c := range []struct {
		name   string
		change func(*config.Resolved)
		says   string
	}{
		{"with its UDP port in use", func(*config.Resolved) {}, "gateway.yaml:5: spec.listen.port"},
		{"with its state directory in use", func(c *config.Resolved) { free(c); c.StateDir = cfg.StateDir }, "in use by pid"},
		{"with a CA that is not there", func(c *config.Resolved) {
			free(c)
			ca := *c.Services.LocalCA
			ca.CertFile = "/none"
			c.Services.LocalCA = &ca
		}, "spec.services.auth.issuer.localCA"},
		{"with its metrics' address in use", func(c *config.Resolved) { free(c); c.HTTPAddress = taken.Addr().String() }, "spec.http.address"},
		{"with a peer that is itself", func(c *config.Resolved) {
			free(c)
			c.PrivateKey = newKey(t)
			c.Peers = []config.Peer{{Name: "self", PublicKey: c.PrivateKey.Public()}}
		}, "own public key"},
	} {
		if err := start(c.change); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("starting %s: %v, want an error about %q", c.name, err, c.says)
		}
		if err := start(free); err != nil {
			t.Errorf("something is left after starting %s: %v", c.name, err)
		}
	}
}

func TestAStateDirectoryThatCannotBeWrittenChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.peer()
	state := filepath.Join(filepath.Dir(w.Cloud.File), "state")
	if err := os.Rename(state, state+".away"); err != nil { // as if the volume had gone
		t.Fatal(err)
	}
	key := newKey(t).Public().String()
	g := w.Cloud.Gateway
	for what, err := range map[string]error{
		"adding a peer":     g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: key}}),
		"changing a grant":  g.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: nil}),
		"making a ticket":   errOf(g.Invite(w.ctx, api.InviteRequest{Allow: both})),
		"removing the peer": g.PeerRemove(w.ctx, "edge", true),
	} {
		if err == nil || !strings.Contains(err.Error(), "state") {
			t.Errorf("%s without a state directory: %v, want an error that names it", what, err)
		}
	}
	if _, there := w.status(w.Cloud, "new"); there {
		t.Error("a peer that was not stored is there")
	}
	if p, there := w.status(w.Cloud, "edge"); !there || !slices.Equal(p.Allow, both) {
		t.Errorf("the peer is shown as %+v, want as it was", p)
	}
	w.reach(patience, w.Edge, w.Cloud)
	if err := os.Rename(state+".away", state); err != nil {
		t.Fatal(err)
	}
	if err := g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: key}}); err != nil {
		t.Errorf("adding a peer when the directory is back: %v", err)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	w.reach(resumption, w.Edge, w.Cloud)
	if _, there := w.status(w.Cloud, "new"); !there {
		t.Error("the added peer is gone after a restart")
	}
}
