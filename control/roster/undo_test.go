package roster

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
)

// TestAChangeThatNobodyConfirmsIsUndone goes through what may happen between a change and its
// deadline.
func TestAChangeThatNobodyConfirmsIsUndone(t *testing.T) {
	const within = time.Minute
	allow := func(services ...string) *api.PeerAllowRequest { return &api.PeerAllowRequest{Allow: services} }
	try := func(t *testing.T, reg *Registry, r api.PeerTryRequest) {
		t.Helper()
		r.Within = api.Duration(within)
		got, err := reg.PeerTry(t.Context(), "cloud", r)
		if left := time.Until(got.UndoneAt); err != nil || left <= 0 || left > within {
			t.Fatalf("it is undone in %v, %v; want within %v", left, err, within)
		}
	}
	for name, c := range map[string]struct {
		between func(*testing.T, *Registry)
		want    []string
	}{
		"nothing":   {func(*testing.T, *Registry) {}, []string{api.ServiceAuth}},
		"confirmed": {func(t *testing.T, reg *Registry) { must(t, reg.PeerConfirm(t.Context(), "cloud")) }, nil},
		"another try": {func(t *testing.T, reg *Registry) {
			try(t, reg, api.PeerTryRequest{Allow: allow(api.ServiceAuth, "logs")})
		}, []string{api.ServiceAuth}},
		"a change that is to stay": {func(t *testing.T, reg *Registry) {
			must(t, reg.PeerAllow(t.Context(), "cloud", *allow("logs")))
		}, []string{"logs"}},
		"a restart": {func(t *testing.T, reg *Registry) {
			must(t, reg.store.Close())
			again, err := state.Open(reg.store.Dir(), nil)
			must(t, err)
			t.Cleanup(func() { _ = again.Close() })
			reg.store = again
			must(t, reg.Change((*Change).Refresh))
		}, []string{api.ServiceAuth}},
		"removed": {func(t *testing.T, reg *Registry) { must(t, reg.PeerRemove(t.Context(), "cloud", true)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t, &fakeTunnel{})
			reg.Config().Services.Named = []config.NamedService{{Name: "logs", Ports: api.PortsOf(5000), Address: "127.0.0.1:5000"}}
			must(t, reg.PeerAdd(t.Context(), api.PeerAddRequest{Peer: api.Peer{
				Name: "cloud", PublicKey: cloudKey, Allow: []string{api.ServiceAuth},
			}}))
			try(t, reg, api.PeerTryRequest{Allow: allow()})
			c.between(t, reg)
			reg.Maintain(time.Now())
			if m := reg.Load().ByName("cloud"); m != nil && name == "nothing" && len(m.Allow) > 0 {
				t.Errorf("before its time it may reach %v", m.Allow)
			}
			reg.Maintain(time.Now().Add(within + time.Second))
			var got []string
			if m := reg.Load().ByName("cloud"); m != nil {
				got = m.Allow
				if !m.UndoneAt.IsZero() {
					t.Errorf("it is still undone at %v", m.UndoneAt)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("it may reach %v, want %v", got, c.want)
			}
		})
	}
}

func TestListenersThatNobodyConfirmsAreUndone(t *testing.T) {
	reg := newRegistry(t, &fakeTunnel{})
	must(t, reg.PeerAdd(t.Context(), api.PeerAddRequest{Peer: api.Peer{
		Name: "cloud", PublicKey: cloudKey, Local: &api.PeerLocal{Named: map[string]string{"logs": "127.0.0.1:5001"}},
	}}))
	before := reg.Load().ByName("cloud").Local
	for _, local := range []map[string]string{{"logs": ""}, {"other": "127.0.0.1:5002"}, {api.ServiceAPIServer: ""}} {
		_, err := reg.PeerTry(t.Context(), "cloud", api.PeerTryRequest{Within: api.Duration(time.Minute), Local: &api.PeerLocalRequest{Local: local}})
		must(t, err)
	}
	if now := fmt.Sprint(reg.Load().ByName("cloud").Local); now == fmt.Sprint(before) {
		t.Fatalf("the listeners are %s as before", now)
	}
	reg.Maintain(time.Now().Add(time.Hour))
	if now := fmt.Sprint(reg.Load().ByName("cloud").Local); now != fmt.Sprint(before) {
		t.Errorf("the listeners are %s, want %v", now, before)
	}
}

// What cannot be stored could not be undone after a restart, so it is not made at all.
func TestAChangeToConfirmThatCannotBeStoredIsNotMade(t *testing.T) {
	reg := newRegistry(t, &fakeTunnel{})
	must(t, reg.PeerAdd(t.Context(), api.PeerAddRequest{Peer: api.Peer{Name: "cloud", PublicKey: cloudKey, Allow: []string{api.ServiceAuth}}}))
	must(t, os.RemoveAll(reg.store.Dir()))
	_, err := reg.PeerTry(t.Context(), "cloud", api.PeerTryRequest{Within: api.Duration(time.Minute), Allow: &api.PeerAllowRequest{}})
	if m := reg.Load().ByName("cloud"); err == nil || len(m.Allow) != 1 || !m.UndoneAt.IsZero() {
		t.Errorf("got %v, and it may reach %v until %v", err, m.Allow, m.UndoneAt)
	}
}

func TestTriesThatAreRefused(t *testing.T) {
	reg := newRegistry(t, &fakeTunnel{})
	must(t, reg.PeerAdd(t.Context(), api.PeerAddRequest{Peer: api.Peer{Name: "cloud", PublicKey: cloudKey}}))
	for name, r := range map[string]api.PeerTryRequest{
		"too short": {Within: api.Duration(time.Second), Allow: &api.PeerAllowRequest{}},
		"too long":  {Within: api.Duration(25 * time.Hour), Allow: &api.PeerAllowRequest{}},
		"nothing":   {Within: api.Duration(time.Minute)},
		"both":      {Within: api.Duration(time.Minute), Allow: &api.PeerAllowRequest{}, Local: &api.PeerLocalRequest{}},
	} {
		if _, err := reg.PeerTry(t.Context(), "cloud", r); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if err := reg.PeerConfirm(t.Context(), "cloud"); err == nil {
		t.Error("there was nothing to confirm")
	}
}

// cloudKey is the key of the peer cloud in request.
var cloudKey = request("cloud", 1).Peer.PublicKey

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
