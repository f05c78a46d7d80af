package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
)

// registry stands for a cluster: it makes issuers, and keeps who may have an identity.
type registry struct {
	mu      sync.Mutex
	opened  []gateway.ClusterIssuerOptions
	running int
	peers   []string
	issued  int
	revoked []string
	refuse  error
}

func (r *registry) open(o gateway.ClusterIssuerOptions) (gateway.ClusterIssuer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.opened = append(r.opened, o)
	return &desk{registry: r}, nil
}

// look reads the registry.
func (r *registry) look(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// desk is one issuer of a registry.
type desk struct{ *registry }

func (d *desk) Tokens() bool { return true }

func (d *desk) User(s auth.Subject) string { return "desk:" + s.IdentityName() }

func (d *desk) Issue(_ context.Context, s auth.Subject, _ []byte) (auth.Issuance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.peers, s.Name) {
		return auth.Issuance{}, fmt.Errorf("%w: %s is no peer", auth.ErrIssuer, s.Name)
	}
	d.issued++
	return auth.Issuance{Token: auth.Token(fmt.Sprintf("token-%d-for-%s", d.issued, s.Name)), NotAfter: time.Now().Add(time.Hour)}, nil
}

func (d *desk) Revoke(s auth.Subject) auth.Revocation {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revoked = append(d.revoked, s.Name)
	return auth.Revocation{Recalled: true}
}

func (d *desk) SetPeers(peers []auth.Subject) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers = nil
	for _, p := range peers {
		d.peers = append(d.peers, p.Name)
	}
}

func (d *desk) Run(ctx context.Context) {
	d.look(func() { d.running++ })
	<-ctx.Done()
	d.look(func() { d.running-- })
}

// newTokenWorld is a world in which cloud issues from a registry.
func newTokenWorld(t *testing.T) (*world, *registry) {
	t.Helper()
	r := &registry{}
	w := newWorld(t, checkOften, func(site string, o *gateway.Options) {
		if site == "cloud" {
			o.NewClusterIssuer = r.open
		}
	})
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Auth.Issuer = &api.Issuer{ServiceAccount: &api.ServiceAccountIssuer{}}
	})
	return w, r
}

// token waits until a site has a token of cloud's, and nothing else.
func (w *world) token(s *lab.Site) string {
	w.t.Helper()
	var c api.Credential
	w.await(s.Name+" has a token", func() string {
		var err error
		if c, err = s.Gateway.Credential(w.ctx, "cloud"); err != nil {
			return err.Error()
		}
		if c.Token == "" || c.ClientCertificate != "" || c.ClientKey != "" {
			return "it has a certificate, or no token"
		}
		return ""
	})
	return c.Token
}

func TestTokensFromTheCluster(t *testing.T) {
	w, r := newTokenWorld(t)
	w.peer()
	if got := w.token(w.Edge); !strings.HasSuffix(got, "-for-edge") {
		t.Errorf("the token is %q, want one for edge", got)
	}
	p, _ := w.status(w.Edge, "cloud")
	if p.Identity == nil || time.Until(p.Identity.NotAfter) < 50*time.Minute {
		t.Errorf("the status shows %+v, want the token's end", p.Identity)
	}

	// Without the grant of both services there is no identity, and the account goes.
	if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: []string{api.ServiceAuth}}); err != nil {
		t.Fatal(err)
	}
	r.look(func() {
		if len(r.peers) != 0 {
			t.Errorf("%v may have an identity, want none", r.peers)
		}
	})
	if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: both}); err != nil {
		t.Fatal(err)
	}
	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
		t.Fatal(err)
	}
	w.audited(w.Cloud, "revoke", map[string]string{"peer": "edge"})
	r.look(func() {
		if len(r.peers) != 0 || !slices.Equal(r.revoked, []string{"edge"}) {
			t.Errorf("after the removal: %v may have an identity, %v was revoked; want none, and edge", r.peers, r.revoked)
		}
	})
}

func TestAReloadKeepsTheIssuerUnlessItChanges(t *testing.T) {
	w, r := newTokenWorld(t)
	w.peer()
	opened := func(want int, namespace string, running int) {
		t.Helper()
		w.await("the issuers are as configured", func() string {
			saw := ""
			r.look(func() {
				last := r.opened[len(r.opened)-1]
				if len(r.opened) != want || last.Namespace != namespace || last.Gateway != "cloud" || r.running != running {
					saw = fmt.Sprintf("%d were opened, %d run, the last is %+v", len(r.opened), r.running, last)
				}
			})
			return saw
		})
	}
	opened(1, config.DefaultAccountNamespace, 1)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.HTTP.Address = "" })
	opened(1, config.DefaultAccountNamespace, 1)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Services.Auth.Issuer.ServiceAccount.Namespace = "tenants" })
	opened(2, "tenants", 1)
	r.look(func() {
		if !slices.Equal(r.peers, []string{"edge"}) {
			t.Errorf("the new issuer knows %v, want edge", r.peers)
		}
	})
	// A refused file changes nothing.
	r.look(func() { r.refuse = errors.New("no cluster to issue in") })
	err := w.edit(w.Cloud, func(g *api.GatewaySpec) { g.Services.Auth.Issuer.ServiceAccount.Namespace = "other" })
	if err == nil || !strings.Contains(err.Error(), "spec.services.auth.issuer.serviceAccount: no cluster") {
		t.Errorf("got %v, want an error that names the field", err)
	}
	opened(2, "tenants", 1)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Auth.Issuer.ServiceAccount.Namespace = "tenants"
		g.Services.Auth.Issuer = nil
	})
	opened(2, "tenants", 0)
}

func TestAProgramWithoutClustersSaysSo(t *testing.T) {
	w := newWorld(t)
	err := w.edit(w.Edge, func(g *api.GatewaySpec) {
		g.Services.Auth = &api.AuthService{Issuer: &api.Issuer{ServiceAccount: &api.ServiceAccountIssuer{}}}
	})
	if err == nil || !strings.Contains(err.Error(), filepath.Base(w.Edge.File)) || !strings.Contains(err.Error(), "use issuer.localCA") {
		t.Errorf("got %v, want an error that names file and field and what to do", err)
	}
}
