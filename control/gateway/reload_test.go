package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/patience"
)

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// scrape is what a scraper gets at an address.
func scrape(t *testing.T, address string) (string, error) {
	t.Helper()
	return get(t, "http://"+address+"/metrics")
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience.Left()}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// Services of Kubernetes lead elsewhere before a gateway that stops resets what is left.
func TestAGatewayThatStopsIsNotReady(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	address := freeAddress(t)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.HTTP.Address = address })
	if text, err := get(t, "http://"+address+"/readyz"); err != nil || text != "ok\n" {
		t.Fatalf("before: %q, %v", text, err)
	}
	drain, stop := context.WithCancel(w.ctx)
	defer stop()
	closed := make(chan error, 1)
	go func() { closed <- w.Cloud.Gateway.Close(drain) }()
	w.await("the gateway is not ready", func() string {
		if err := s.echo("while it stops"); err != nil {
			t.Fatal(err)
		}
		text, err := get(t, "http://"+address+"/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if text != "the gateway is stopping\n" {
			return text
		}
		return ""
	})
	stop()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestAReloadDisturbsNothingThatStays(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	atRest := func(p api.PeerStatus) string { // both may have dialled, and then there are two handshakes
		if p.NextTry != nil {
			return "it is dialled"
		}
		return connectedPeer(p)
	}
	w.awaitPeer(w.Edge, "cloud", atRest)
	before := w.awaitPeer(w.Cloud, "edge", atRest)
	first, second := freeAddress(t), freeAddress(t)
	other := api.Peer{Name: "other", PublicKey: newKey(t).Public().String(), Allow: []string{api.ServiceAuth}}
	undisturbed := func(when string) {
		t.Helper()
		if err := s.echo(when); err != nil {
			t.Errorf("%s: the stream ended: %v", when, err)
		}
		if p, _ := w.status(w.Cloud, "edge"); !p.LastHandshake.Equal(*before.LastHandshake) {
			t.Errorf("%s: there was another handshake", when)
		}
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = []api.Peer{other} })
	undisturbed("after a peer was added")
	if p, there := w.status(w.Cloud, "other"); !there || p.State != api.StateConnecting || !strings.Contains(p.Reason, "must dial us") {
		t.Errorf("the added peer is shown as %+v", p)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		other.Allow = both
		g.Peers = []api.Peer{other}
		g.HTTP.Address = first
	})
	undisturbed("after the peer was changed and metrics were switched on")
	if p, _ := w.status(w.Cloud, "other"); !slices.Equal(p.Allow, both) {
		t.Errorf("the changed peer may reach %v", p.Allow)
	}
	if text, err := scrape(t, first); err != nil || !strings.Contains(text, `postern_reloads_total{result="success"} 3`) {
		t.Errorf("metrics at the new address: %v\n%s", err, text)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Peers, g.HTTP.Address = nil, second
		g.Discovery.STUNServers = g.Discovery.STUNServers[:1]
		g.Discovery.Advertise = []string{"203.0.113.10:40000"}
		g.Services.Named[0].Address = echoServer(t)
	})
	undisturbed("after the peer was removed and all else was changed")
	if _, there := w.status(w.Cloud, "other"); there {
		t.Error("the removed peer is shown")
	}
	if _, err := scrape(t, first); err == nil {
		t.Error("metrics are still served at the old address")
	}
	if _, err := scrape(t, second); err != nil {
		t.Error(err)
	}
	w.await("the advertised address is a candidate", func() string {
		st, err := w.Cloud.Gateway.Status(w.ctx)
		if err != nil {
			return err.Error()
		}
		if c := st.Gateway.Candidates; len(c) == 0 || c[0].Address != "203.0.113.10:40000" || c[0].Source != api.SourceAdvertised {
			return "the candidates are others"
		}
		return ""
	})
	w.open(w.localAddress(w.Edge, "cloud", "echo")) // at the new upstream
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Services.Named, g.HTTP.Address = nil, "" })
	s.resetWithin(removal)
	if _, err := scrape(t, second); err == nil {
		t.Error("metrics are served though they were switched off")
	}
	w.audited(w.Cloud, "reload", map[string]string{"reason": "spec.http.address"})
}

func TestABadReloadLeavesAllAsItWas(t *testing.T) {
	w := newWorld(t)
	metrics := freeAddress(t)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.HTTP.Address = metrics })
	w.peer()
	taken, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good, err := os.ReadFile(w.Cloud.File)
	if err != nil {
		t.Fatal(err)
	}
	key, other, third := siteKey(w.Edge).String(), newKey(t).Public().String(), newKey(t).Public().String()
	visitor := api.Peer{Name: "visitor", PublicKey: other}
	bad := 0
	for _, c := range []struct {
		name   string
		change func(*api.GatewaySpec)
		says   string
	}{
		{"a name that another key has", func(g *api.GatewaySpec) { g.Peers = append(g.Peers, api.Peer{Name: "edge", PublicKey: third}) }, "postern peer remove edge"},
		{"a key that another name has", func(g *api.GatewaySpec) { g.Peers = append(g.Peers, api.Peer{Name: "border", PublicKey: key}) }, "edge"},
		{"an address in use", func(g *api.GatewaySpec) { g.HTTP.Address = taken.Addr().String() }, "spec.http.address"},
		{"an address that is not ours", func(g *api.GatewaySpec) { g.HTTP.Address = "192.0.2.1:9" }, "spec.http.address"},
		{"a file that is not there", func(g *api.GatewaySpec) { g.Services.Auth.Issuer.LocalCA.CertFile = "/none" }, "/none"},
		{"another port", func(g *api.GatewaySpec) { p := uint16(4); g.Listen.Port = &p }, "restart"},
		{"another state directory", func(g *api.GatewaySpec) { g.StateDir += "2" }, "restart"},
		{"two services on one port", func(g *api.GatewaySpec) {
			g.Services.Named = []api.NamedService{{Name: "a", Port: 7, Address: "127.0.0.1:7"}, {Name: "b", Port: 7, Address: "127.0.0.1:7"}}
		}, "spec.services.named[1]"},
		{"a STUN server that is none", func(g *api.GatewaySpec) { g.Discovery.STUNServers = []string{"no port"} }, "spec.discovery.stunServers[0]"},
	} {
		spec := w.Cloud.Spec()
		err := w.edit(w.Cloud, func(g *api.GatewaySpec) {
			g.Peers = []api.Peer{visitor}
			c.change(g)
		})
		bad++
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error about %q", c.name, err, c.says)
		}
		if _, there := w.status(w.Cloud, "visitor"); there {
			t.Errorf("%s: a peer of the refused file is there", c.name)
		}
		if text, err := scrape(t, metrics); err != nil || !strings.Contains(text, "postern_build_info") {
			t.Errorf("%s: metrics are gone: %v", c.name, err)
		}
		w.mustEditTo(spec)
	}
	// What is no configuration at all is no other matter.
	if err := os.WriteFile(w.Cloud.File, []byte("apiVersion: postern.dev/v1alpha1\nkind: Gateway\nspec: {listne: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad++
	if err := w.Cloud.Gateway.Reload(w.ctx); err == nil || !strings.Contains(err.Error(), "gateway.yaml:3: spec.listne") {
		t.Errorf("an unknown field: %v", err)
	}
	if err := os.WriteFile(w.Cloud.File, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Cloud.Gateway.Reload(w.ctx); err != nil {
		t.Error(err)
	}
	if n := w.metric(w.Cloud, "postern_reloads_total", `result="error"`); n != float64(bad) {
		t.Errorf("%v failed reloads are counted, want %d", n, bad)
	}
	w.reach(w.Edge, w.Cloud)
}

// mustEditTo sets cloud's configuration and has it applied.
func (w *world) mustEditTo(spec api.GatewaySpec) {
	w.t.Helper()
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { *g = spec })
}

func TestMetricsMoveBetweenInterfacesOfOnePort(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	for _, a := range []string{address, "0.0.0.0:" + port, address} {
		w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.HTTP.Address = a })
		if _, err := scrape(t, address); err != nil {
			t.Errorf("at %s: %v", a, err)
		}
	}
	// The move is taken back with the rest of what is refused.
	if err := w.edit(w.Cloud, func(g *api.GatewaySpec) {
		g.HTTP.Address = "0.0.0.0:" + port
		g.Peers = []api.Peer{{Name: "self", PublicKey: siteKey(w.Cloud).String()}}
	}); err == nil || !strings.Contains(err.Error(), "own") {
		t.Errorf("a peer with the gateway's own key: %v", err)
	}
	if _, err := scrape(t, address); err != nil {
		t.Errorf("after a refused move: %v", err)
	}
	if n := w.metric(w.Cloud, "postern_reloads_total", `result="error"`); n != 1 {
		t.Errorf("%v failed reloads are counted, want 1", n)
	}
}

func TestAPeerMayMoveFromTicketToFile(t *testing.T) {
	w := newWorld(t)
	w.peer()
	// The file names the peer by its key, for grants that commands do not change. What
	// was agreed when it joined still holds.
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Peers = []api.Peer{{Name: "edge", PublicKey: siteKey(w.Edge).String(), Allow: []string{api.ServiceAuth}}}
	})
	if p, _ := w.status(w.Cloud, "edge"); !slices.Equal(p.Allow, []string{api.ServiceAuth}) {
		t.Errorf("the file allows auth, and the peer may reach %v", p.Allow)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	w.reach(w.Edge, w.Cloud)
	for what, err := range map[string]error{
		"allow":  w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: both}),
		"remove": w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true),
		"add":    w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "edge", PublicKey: siteKey(w.Edge).String()}}),
		"local":  w.Cloud.Gateway.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"apiServer": "127.0.0.1:0"}}),
	} {
		w.refused(what+" for a peer of the file", err, false, "gateway.yaml", "SIGHUP")
	}
	_, err := w.tryJoin(w.Edge, w.invite(w.Cloud, api.InviteRequest{}), api.JoinRequest{})
	w.refused("a ticket for a peer of the file", err, false, "is a peer there already")
	w.reach(w.Edge, w.Cloud)
	// Without the entry it is what it was.
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = nil })
	if p, _ := w.status(w.Cloud, "edge"); !slices.Equal(p.Allow, both) {
		t.Errorf("without its entry the peer may reach %v, want what its ticket gave", p.Allow)
	}
	w.reach(w.Edge, w.Cloud)
}

func TestOptionsForAPeerThatJoins(t *testing.T) {
	w := newWorld(t)
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	listen := freeAddress(t)
	w.mustEdit(w.Edge, func(g *api.GatewaySpec) {
		g.Peers = []api.Peer{{Name: "hq", Local: &api.PeerLocal{Named: map[string]string{"echo": listen}}}}
	})
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = []api.Peer{{Name: "kiosk", Allow: []string{"echo"}}} })
	if st, err := w.Cloud.Gateway.Status(w.ctx); err != nil || len(st.Peers) != 0 {
		t.Errorf("options alone are shown as a peer: %+v, %v", st.Peers, err)
	}
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Name: "kiosk"}), api.JoinRequest{Name: "hq"})
	w.open(listen)
}

func TestChangesFromManySidesAtOnce(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	g := w.Cloud.Gateway
	var workers []func(i int) error
	key := newKey(t).Public().String()
	workers = append(workers,
		func(int) error { return g.Reload(w.ctx) },
		func(i int) error {
			if i%2 == 0 {
				return g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "comes-and-goes", PublicKey: key, Allow: both}})
			}
			return g.PeerRemove(w.ctx, "comes-and-goes", true)
		},
		func(int) error { return errOf(g.Status(w.ctx)) },
		func(i int) error {
			return g.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"x": []string{"127.0.0.1:0", ""}[i%2]}})
		},
		func(int) error {
			invited, err := g.Invite(w.ctx, api.InviteRequest{})
			return errors.Join(err, g.Revoke(invited.ID))
		},
	)
	errs := make(chan error, len(workers))
	for _, work := range workers {
		go func() {
			var err error
			for i := 0; err == nil && ctx.Err() == nil; i++ {
				err = work(i)
			}
			errs <- err
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := s.echo("after it all"); err != nil {
		t.Errorf("the stream ended: %v", err)
	}
}

// TestAConfigurationIsTried goes through what may come before and after the time in which it is to be
// confirmed; what comes of it when nobody does, the binary is asked (testenv/e2e).
func TestAConfigurationIsTried(t *testing.T) {
	w := newWorld(t)
	g := w.Cloud.Gateway
	edit := func(rate int, stun ...string) {
		t.Helper()
		if err := w.Cloud.Edit(func(s *api.GatewaySpec) {
			s.Limits.ConnectionsPerSecond, s.Discovery.STUNServers = rate, stun
		}); err != nil {
			t.Fatal(err)
		}
	}
	try := func(within time.Duration) (undone bool, err error) {
		r, err := g.ConfigTry(w.ctx, api.ConfigTryRequest{Within: api.Duration(within)})
		return !r.UndoneAt.IsZero(), err
	}
	shown := func(want bool, when string) {
		t.Helper()
		st, err := g.Status(w.ctx)
		if err != nil || (st.Gateway.ConfigUndoneAt != nil) != want {
			t.Errorf("%s: it is shown to be undone at %v, %v", when, st.Gateway.ConfigUndoneAt, err)
		}
	}
	if err := g.ConfigConfirm(w.ctx); err == nil || !strings.Contains(err.Error(), "no configuration waits") {
		t.Errorf("confirming nothing: %v", err)
	}
	edit(100)
	if _, err := try(time.Second); err == nil || !strings.Contains(err.Error(), "within") {
		t.Errorf("a second: %v", err)
	}
	shown(false, "refused")
	if undone, err := try(time.Hour); err != nil || !undone {
		t.Errorf("tried: undone %v, %v", undone, err)
	}
	shown(true, "tried")
	if err := g.Hangup(w.ctx); err != nil {
		t.Error(err)
	}
	shown(true, "a signal, from whoever was cut off")
	edit(100, "no port")
	if _, err := try(time.Hour); err == nil {
		t.Error("a file with a mistake is tried")
	}
	shown(true, "a file with a mistake")
	refused := func() bool {
		st, err := g.Status(w.ctx)
		return err == nil && slices.ContainsFunc(st.Problems, func(c api.Check) bool { return c.Code == string(catalogue.ConfigRefused) })
	}
	if !refused() {
		t.Error("status does not say that the file is not in force")
	}
	edit(0)
	if err := g.Reload(w.ctx); err != nil {
		t.Error(err)
	}
	if refused() {
		t.Error("status says that a file is not in force that is")
	}
	shown(false, "reloaded for good")
	edit(100)
	if _, err := try(time.Hour); err != nil {
		t.Error(err)
	}
	edit(0)
	if undone, err := try(time.Hour); err != nil || undone {
		t.Errorf("back to what was confirmed: undone %v, %v", undone, err)
	}
	shown(false, "as it was confirmed")
}
