package gateway_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/discovery"
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
	other.Mode = api.ModeOutOfBand
	set(other)
	if p, _ := w.status(w.Cloud, "other"); p.Mode != api.ModeOutOfBand {
		t.Errorf("with another mode, and nothing else, it is shown as %+v", p)
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

func TestWhatTheClusterFindsIsShown(t *testing.T) {
	w := newWorld(t, inCluster)
	g := w.Cloud.Gateway
	g.SetServiceEndpoints([]discovery.ServiceEndpoint{{Address: "198.51.100.20:30820", From: "NodePort of Service postern"}})
	w.await("the Service's address is a candidate", func() string {
		s, err := g.Status(w.ctx)
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(s.Gateway.Candidates, func(c api.Candidate) bool {
			return c.Address == "198.51.100.20:30820" && c.Source == api.SourceService
		}) {
			return fmt.Sprint(s.Gateway.Candidates)
		}
		return ""
	})
	shown := func() (api.Check, bool) {
		t.Helper()
		report, err := g.Checks(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(report.Checks, func(c api.Check) bool { return c.Name == "service" })
		if i < 0 {
			return api.Check{}, false
		}
		return report.Checks[i], true
	}
	g.SetProblems("exposure", []check.OwnProblem{{Name: "service", Code: catalogue.LoadBalancerPending}})
	if c, there := shown(); !there || c.Code != string(catalogue.LoadBalancerPending) || c.Verdict.Verdict != api.Warning || c.Fix == "" {
		t.Errorf("got %+v", c)
	}
	g.SetProblems("exposure", nil)
	if c, there := shown(); there {
		t.Errorf("it is fixed, and shown still: %+v", c)
	}
}

// In a cluster there is a listener for each service that a peer offers, for the peer's
// Service leads there; elsewhere only those that somebody wants.
func TestEveryServiceOfAPeerHasAListenerInACluster(t *testing.T) {
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "edge" {
			cfg := *o.Config
			cfg.Kubernetes = &config.Kubernetes{Release: "postern", Service: "postern", PeerServices: true}
			o.Config = &cfg
			o.AdmitLocal = func(peer string, _ api.Protocol, from netip.AddrPort) error {
				return fmt.Errorf("no pod has the address %s", from.Addr())
			}
		}
	})
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Named = []api.NamedService{{Name: "registry", Port: 5000, Address: "127.0.0.1:1"}}
	})
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"apiServer", "auth", "registry"}}), api.JoinRequest{})
	var address string
	w.await("edge listens for both services of cloud", func() string {
		p, _ := w.status(w.Edge, "cloud")
		var services []string
		for _, l := range p.Local {
			services = append(services, l.Service)
			address = l.Address
		}
		if !slices.Equal(services, []string{"apiServer", "registry"}) {
			return fmt.Sprint(services)
		}
		return ""
	})
	if c, err := new(net.Dialer).DialContext(w.ctx, "tcp", address); err == nil { // the reset may come as soon
		defer c.Close()
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("who is not admitted gets %d bytes", n)
		}
	}
	w.await("the refusal is recorded", func() string {
		if !strings.Contains(w.log.String(), "no pod has the address 127.0.0.1") {
			return "it is not in the log"
		}
		return ""
	})
}

// Who puts a listener on the loopback interface wants the programs there to use it. In a pod with
// its node's network AdmitLocal refuses them everywhere else.
func TestAListenerOnLoopbackAdmitsWhoReachesIt(t *testing.T) {
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "edge" {
			o.AdmitLocal = func(string, api.Protocol, netip.AddrPort) error { return errors.New("not one of the cluster's pods") }
			o.KnownLocal = func(string, netip.AddrPort) bool { return false }
		}
	})
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"echo"}}), api.JoinRequest{Local: map[string]string{"echo": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	w.open(w.localAddress(w.Edge, "cloud", "echo"))
}
