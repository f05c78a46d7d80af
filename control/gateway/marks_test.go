package gateway_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/gateway"
)

// A grant that is taken, or given, is known at the other side at once: nobody there asks for
// minutes.
func TestAChangedGrantIsToldAtOnce(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.inbound(w.Edge, "cloud", "any, ok, ok")
	for _, step := range []struct {
		allow []string
		want  api.Outcome
	}{{[]string{api.ServiceAuth}, api.Off}, {[]string{api.ServiceAuth, api.ServiceAPIServer}, api.OK}} {
		if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: step.allow}); err != nil {
			t.Fatal(err)
		}
		w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
			if v := p.Reachability.Outbound.APIServer; v.Verdict != step.want {
				return "edge finds cloud's API server " + string(v.Verdict) + " " + v.Code
			}
			return ""
		})
	}
}

// witness is an issuer that sees the accounts of its peers.
type witness struct {
	gateway.ClusterIssuer
	account *atomic.Value
}

func (i witness) Incarnation(auth.Subject) (string, bool) { return i.account.Load().(string), true }

// A token whose account was deleted is replaced before anybody has used it: it is told by the
// one who issued it.
func TestAnIdentityThatHasEndedIsReplacedAtOnce(t *testing.T) {
	var account atomic.Value
	account.Store("one")
	r := &registry{}
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "cloud" {
			o.NewClusterIssuer = func(o gateway.ClusterIssuerOptions) (gateway.ClusterIssuer, error) {
				i, err := r.open(o)
				return witness{i, &account}, err
			}
		}
	})
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Auth.Issuer = &api.Issuer{ServiceAccount: &api.ServiceAccountIssuer{}}
	})
	w.peer()
	old := w.token(w.Edge)
	w.inbound(w.Edge, "cloud", "any, ok, ok") // cloud has reported, and so told of the account
	account.Store("")
	w.await("edge has another token", func() string {
		if now := w.token(w.Edge); now == old {
			return "it has " + now
		}
		return ""
	})
}

// However often a grant is taken and given again, what was issued before it was taken is not used
// after: its account is gone.
func TestAGrantThatReturnsGetsAnotherIdentityAtOnce(t *testing.T) {
	r := &registry{}
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "cloud" {
			o.NewClusterIssuer = func(o gateway.ClusterIssuerOptions) (gateway.ClusterIssuer, error) { return r.open(o) }
		}
	})
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Auth.Issuer = &api.Issuer{ServiceAccount: &api.ServiceAccountIssuer{}}
	})
	w.peer()
	w.token(w.Edge)
	allow := func(services ...string) {
		t.Helper()
		if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: services}); err != nil {
			t.Fatal(err)
		}
	}
	offered := func(want bool) {
		t.Helper()
		w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
			if got := slices.Contains(p.Offers, api.ServiceAPIServer); got != want {
				return fmt.Sprintf("edge is offered %v", p.Offers)
			}
			return ""
		})
	}
	for range 7 {
		old := w.token(w.Edge)
		allow(api.ServiceAuth)
		offered(false)
		allow(both...)
		given := time.Now()
		offered(true)
		w.await("edge has another token", func() string {
			if now, err := w.Edge.Gateway.Credential(w.ctx, "cloud"); err != nil || now.Token == old {
				return fmt.Sprintf("it has %q (%v)", now.Token, err)
			}
			return ""
		})
		if took := time.Since(given); took > removal {
			t.Fatalf("another token took %v", took)
		}
	}
}
