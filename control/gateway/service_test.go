package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
)

// removal bounds how soon the connections of a removed peer must end: at once, on an idle
// machine.
const removal = 30 * time.Second

// checkOften makes verdicts follow what happens without a long wait.
func checkOften(_ string, o *gateway.Options) {
	o.CheckInterval, o.CheckRetry = 300*time.Millisecond, 300*time.Millisecond
}

// apiServerVerdict waits for the verdict on a peer's API server.
func (w *world) apiServerVerdict(s *lab.Site, peer string, want api.Outcome) api.Verdict {
	w.t.Helper()
	p := w.awaitPeer(s, peer, func(p api.PeerStatus) string {
		if v := p.Reachability.Outbound.APIServer; v.Verdict != want {
			return fmt.Sprintf("the API server is %s (%s %s), want %s", v.Verdict, v.Code, v.Cause, want)
		}
		return ""
	})
	return p.Reachability.Outbound.APIServer
}

func TestAGrantCanBeGivenAndTakenBack(t *testing.T) {
	w := newWorld(t, checkOften)
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{api.ServiceAuth}}),
		api.JoinRequest{Local: map[string]string{"echo": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	if v := w.apiServerVerdict(w.Edge, "cloud", api.Off); v.Code == "" || !strings.Contains(v.Fix, "postern peer allow") {
		t.Errorf("the verdict on a service that is not granted: %+v", v)
	}
	if _, err := w.Edge.Gateway.Credential(w.ctx, "cloud"); err == nil || !strings.Contains(err.Error(), "auth,apiServer") {
		t.Errorf("the credential of one who gets none: %v", err)
	}
	lost := func() string { // what edge finds about its listener for echo
		report, err := w.Edge.Gateway.Checks(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Checks {
			if c.Name == "listener-echo" {
				return c.Code + " " + string(c.Verdict.Verdict) + " " + c.Cause
			}
		}
		return ""
	}
	if c, err := new(net.Dialer).DialContext(w.ctx, "tcp", w.localAddress(w.Edge, "cloud", "echo")); err != nil {
		if !errors.Is(err, syscall.ECONNRESET) { // sooner than the connection was made
			t.Error(err)
		}
	} else {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a service that is not granted answers")
		}
		c.Close()
	}
	if got := lost(); !strings.Contains(got, "PST0320 warning") || !strings.Contains(got, "echo of cloud") {
		t.Errorf("edge finds %q about a listener that leads nowhere", got)
	}
	p, _ := w.status(w.Edge, "cloud")
	for _, l := range p.Local {
		if (l.Lost != nil) != (l.Service == "echo") || l.Lost != nil && l.Lost.Code != "PST0320" {
			t.Errorf("the status of the listener for %s is %+v", l.Service, l.Lost)
		}
	}

	grant := func(services ...string) {
		t.Helper()
		if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: services}); err != nil {
			t.Fatal(err)
		}
	}
	grant(append([]string{"echo"}, both...)...)
	w.audited(w.Cloud, "grant", map[string]string{"peer": "edge", "services": "echo"})
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	s := w.open(w.localAddress(w.Edge, "cloud", "echo"))
	if got := lost(); got != "" {
		t.Errorf("after a connection that works: %s", got)
	}

	grant(api.ServiceAuth)
	s.resetWithin(removal)
	w.apiServerVerdict(w.Edge, "cloud", api.Off)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.Identity != nil {
			return "it still keeps an identity that is good for nothing"
		}
		return ""
	})
	w.refused("granting what there is not", w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: []string{"none"}}), true, "none", "echo")
}

func TestRemovingAPeerEndsAllItHad(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	allow := api.PeerAllowRequest{Allow: append([]string{"echo"}, both...)}
	if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", allow); err != nil {
		t.Fatal(err)
	}
	if err := w.Edge.Gateway.PeerLocal(w.ctx, "cloud", api.PeerLocalRequest{Local: map[string]string{"echo": "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	s := w.open(w.localAddress(w.Edge, "cloud", "echo"))
	w.identified(w.Edge, "cloud") // to be revoked, and so that none is being issued when it is removed
	w.refused("removing a peer in use", w.Cloud.Gateway.PeerRemove(w.ctx, "edge", false), false, "connections open", "--force")
	if err := s.echo("still here"); err != nil {
		t.Errorf("a removal that was refused ended the stream: %v", err)
	}

	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
		t.Fatal(err)
	}
	s.resetWithin(removal)
	w.audited(w.Cloud, "remove", map[string]string{"peer": "edge"})
	w.audited(w.Cloud, "revoke", map[string]string{"peer": "edge"})
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("a removed peer is shown")
	}
	issued := w.log.count("cloud", "issue", nil)
	if r, err := w.Edge.Gateway.Ping(w.ctx, "cloud", api.PingRequest{Layer: "auth"}); err != nil || r.Error == "" {
		t.Errorf("a removed peer still reaches auth: %+v, %v", r, err)
	}
	w.refused("removing nobody", w.Cloud.Gateway.PeerRemove(w.ctx, "edge", false), true, `"edge"`)
	if err := w.Cloud.Gateway.PeerRemove(w.ctx, "edge", true); err != nil {
		t.Errorf("removing with force what is gone: %v", err)
	}

	w.stop(w.Cloud)
	w.start(w.Cloud)
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("a removed peer is back after a restart")
	}
	if n := w.log.count("cloud", "issue", nil); n != issued {
		t.Errorf("%d identities were issued to a removed peer", n-issued)
	}
	// A new ticket brings it back, though it never heard of its removal.
	w.peer()
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
}

func TestNamedServicesBothWays(t *testing.T) {
	w := newWorld(t)
	w.namedEcho(w.Cloud, "registry", 5000, echoServer(t))
	w.namedEcho(w.Edge, "camera", 8554, echoServer(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"registry"}}),
		api.JoinRequest{Allow: []string{"camera"}, Local: map[string]string{"registry": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	if err := w.Cloud.Gateway.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"camera": "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	// Where each service listens inside the tunnel is known from the peer's hello.
	out, in := w.open(w.localAddress(w.Edge, "cloud", "registry")), w.open(w.localAddress(w.Cloud, "edge", "camera"))
	for _, s := range []*stream{out, in} {
		if err := s.echo(strings.Repeat("x", 100_000)); err != nil {
			t.Error(err)
		}
	}
	p, _ := w.status(w.Cloud, "edge")
	seen := map[string]bool{}
	for _, f := range p.Flows {
		seen[f.Direction+" "+f.Service] = true
	}
	if !seen["inbound registry"] || !seen["outbound camera"] {
		t.Errorf("cloud shows the flows %+v", p.Flows)
	}
	w.refused("a listener for no service", w.Cloud.Gateway.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"No": "127.0.0.1:0"}}), true, "No")
	w.refused("a listener nowhere", w.Cloud.Gateway.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"camera": "8554"}}), true, "8554")

	// A listener that is taken away takes its connections along.
	if err := w.Cloud.Gateway.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"camera": ""}}); err != nil {
		t.Fatal(err)
	}
	in.resetWithin(removal)
	if err := out.echo("undisturbed"); err != nil {
		t.Errorf("another listener's connection ended with it: %v", err)
	}
}

func TestAServiceThatIsNotOfferedIsNotAskedForAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{}), api.JoinRequest{Local: map[string]string{"nothing": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	address := w.localAddress(w.Edge, "cloud", "nothing")
	ended := func() { // by a reset, and not by a hang
		c, err := dial(w.ctx, address)
		if errors.Is(err, syscall.ECONNRESET) {
			return // sooner than the dial returned
		}
		if err != nil {
			t.Fatal(err)
		}
		(&stream{c, t}).resetWithin(patience.Left())
		c.Close()
	}
	ended()
	before := w.metric(w.Cloud, "postern_auth_decisions_total", `result="ok"`)
	const connections = 40
	start := time.Now()
	for range connections {
		ended()
	}
	// What else the two tell each other meanwhile counts as well, and that is more where each takes long.
	most := connections/4 + time.Since(start).Seconds()
	if n := w.metric(w.Cloud, "postern_auth_decisions_total", `result="ok"`) - before; n > most {
		t.Errorf("%d connections to what is not offered asked the peer %v times, want at most %.0f", connections, n, most)
	}
	w.await("edge says why", func() string { // but for those that came before it was heard
		ended()
		if !strings.Contains(w.log.String(), "does not offer us a service nothing") {
			return "nothing is logged"
		}
		return ""
	})
}

func TestAListenersAddressInUseIsReportedAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	ln, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: both}), api.JoinRequest{Local: map[string]string{api.ServiceAPIServer: taken}})
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if len(p.Local) != 1 || p.Local[0].Address != taken || !strings.Contains(p.Local[0].Error, "in use") {
			return fmt.Sprintf("the listener is shown as %+v, want that its address is in use", p.Local)
		}
		return ""
	})
	_, err = w.Edge.Gateway.Kubeconfig(w.ctx, "cloud")
	w.refused("a kubeconfig for a listener that is not there", err, false, "in use", "postern peer local cloud")
	ln.Close()
	if got := w.localAddress(w.Edge, "cloud", api.ServiceAPIServer); got != taken {
		t.Errorf("the listener is at %s, want %s", got, taken)
	}
	w.await("a kubeconfig leads to the listener", func() string {
		k, err := w.Edge.Gateway.Kubeconfig(w.ctx, "cloud")
		if err != nil {
			return err.Error()
		}
		if k.Server != "https://"+taken || k.CAData == "" || k.ServerName != "kubernetes.default.svc" {
			return fmt.Sprintf("it is %+v", k)
		}
		return ""
	})
}

func TestAListenersPortStaysAcrossARestart(t *testing.T) {
	w := newWorld(t)
	w.peer()
	before := w.localAddress(w.Edge, "cloud", api.ServiceAPIServer)
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	if a, err := netip.ParseAddrPort(before); err != nil || !a.Addr().IsLoopback() || a.Port() == 0 {
		t.Errorf("the listener is at %s, want a loopback port", before)
	}
	w.stop(w.Edge)
	w.start(w.Edge)
	if after := w.localAddress(w.Edge, "cloud", api.ServiceAPIServer); after != before {
		t.Errorf("the listener moved from %s to %s", before, after)
	}
	// What the peer said of its API server is known before it answers again.
	if _, err := w.Edge.Gateway.Kubeconfig(w.ctx, "cloud"); err != nil {
		t.Errorf("no kubeconfig after a restart: %v", err)
	}
}

func TestAnUpstreamThatIsDownRefusesAtOnce(t *testing.T) {
	w := newWorld(t, checkOften)
	ln, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := ln.Addr().String()
	ln.Close()
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Services.APIServer.Address = upstream })
	w.peer()
	v := w.apiServerVerdict(w.Edge, "cloud", api.Error)
	if !strings.HasPrefix(v.Code, "PST03") || v.Fix == "" {
		t.Errorf("the verdict is %+v, want a code PST03xx and a fix", v)
	}
	c, err := dial(w.ctx, w.localAddress(w.Edge, "cloud", api.ServiceAPIServer))
	switch {
	case err == nil:
		defer c.Close()
		(&stream{c, t}).resetWithin(removal)
	case !errors.Is(err, syscall.ECONNRESET):
		t.Fatal(err)
	}
	w.await("cloud says which upstream is down", func() string {
		if l := w.log.String(); !strings.Contains(l, upstream) || !strings.Contains(l, `"code":"PST03`) {
			return "nothing is logged"
		}
		return ""
	})
	// It is dialled again for each connection, so it may come back at any time.
	if ln, err = listen(t, upstream); err != nil {
		t.Fatal(err)
	}
	serveEcho(t, ln)
	w.open(w.localAddress(w.Edge, "cloud", api.ServiceAPIServer))
}

func TestAConnectionThatFailsCorrectsTheVerdict(t *testing.T) {
	w := newWorld(t)
	w.peer()
	address := w.localAddress(w.Edge, "cloud", api.ServiceAPIServer)
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	if err := w.Cloud.API.Close(); err != nil {
		t.Fatal(err)
	}
	// The verdict stands until somebody finds out.
	w.await("the verdict is corrected", func() string {
		if c, err := dial(w.ctx, address); err == nil {
			(&stream{c, t}).resetWithin(patience.Left())
			c.Close()
		}
		p, _ := w.status(w.Edge, "cloud")
		if v := p.Reachability.Outbound.APIServer; v.Verdict != api.Error {
			return string(v.Verdict)
		}
		return ""
	})
}

func TestAHalfClosedStreamGoesOnTheOtherWay(t *testing.T) {
	w := newWorld(t)
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"echo"}}), api.JoinRequest{Local: map[string]string{"echo": "127.0.0.1:0"}})
	s := w.open(w.localAddress(w.Edge, "cloud", "echo"))
	const size = 1 << 18
	go func() {
		_, _ = io.WriteString(s, strings.Repeat("y", size))
		_ = s.Conn.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, s)
	if n != size || err != nil {
		t.Errorf("%d bytes came back after the end of the stream (%v), want %d", n, err, size)
	}
}
