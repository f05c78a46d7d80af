package gateway_test

import (
	"path/filepath"
	"strings"
	"testing"

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
