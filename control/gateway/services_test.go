package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
)

// clusters has the gateways of a world take part in the services of clusters.
func clusters(_ string, o *gateway.Options) { o.Clusterset = &gateway.Clusterset{Namespace: "postern"} }

// trade has two sites export and import the services of these namespaces, both ways.
func (w *world) trade(a, b *lab.Site, patterns ...string) {
	w.t.Helper()
	for _, pair := range [][2]*lab.Site{{a, b}, {b, a}} {
		w.mustEdit(pair[0], func(g *api.GatewaySpec) {
			g.Peers = slices.DeleteFunc(g.Peers, func(p api.Peer) bool { return p.Name == pair[1].Name })
			g.Peers = append(g.Peers, api.Peer{Name: pair[1].Name, Services: &api.PeerServices{Export: patterns, Import: patterns}})
		})
	}
}

// pod is a server that says who it is to whoever connects, and is told when somebody does.
type pod struct {
	name    string
	address netip.AddrPort
}

// newPod listens at an address of this machine that a backend may have.
func (w *world) newPod(name string) pod {
	w.t.Helper()
	ln, err := new(net.ListenConfig).Listen(w.ctx, "tcp", net.JoinHostPort(hostAddress(w.t), "0"))
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name+"\n")
			_, _ = io.Copy(io.Discard, c) // until the client ends
			c.Close()
		}
	}()
	w.t.Cleanup(func() { ln.Close(); <-done })
	return pod{name, ln.Addr().(*net.TCPAddr).AddrPort()}
}

// hostAddress is one of this machine that is not loopback, which no backend may have.
func hostAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr().String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// export is a service of these pods.
func export(namespace, name string, ready bool, pods ...pod) mcs.Export {
	x := mcs.Export{
		Name: mcs.Name{Namespace: namespace, Name: name}, UID: namespace + "-" + name, Created: time.Unix(1_700_000_000, 0),
		Spec: mcs.Spec{Type: mcs.ClusterSetIP, Ports: []mcs.Port{{Name: "http", Protocol: api.TCP, Port: 80}}},
	}
	for _, p := range pods {
		x.Backends = append(x.Backends, mcs.Backend{Addr: p.address.Addr(), Ready: ready, Ports: map[string]uint16{"http": p.address.Port()}})
	}
	return x
}

// awaitState waits until a site's state is as it should be; want says what is missing.
func (w *world) awaitState(s *lab.Site, what string, want func(mcs.State) string) mcs.State {
	w.t.Helper()
	start := time.Now()
	deadline := time.After(patience.Left())
	for {
		state, changed := s.Gateway.Services().State()
		missing := want(state)
		if missing == "" {
			return state
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("waited %s until %s: %s", time.Since(start), what, missing)
		}
	}
}

// imported waits until a site imports a service from a peer, and says where.
func (w *world) imported(s *lab.Site, from, service string) netip.AddrPort {
	w.t.Helper()
	var at netip.AddrPort
	w.awaitState(s, s.Name+" imports "+service, func(st mcs.State) string {
		for _, i := range st.Imports {
			for _, c := range i.Clusters {
				if i.Name.String() == service && c.ID == from && len(c.Endpoints) == 1 && len(c.Endpoints[0].Ports) == 1 {
					at = c.Endpoints[0].Ports[0].At
					return ""
				}
			}
		}
		return fmt.Sprintf("the state is %+v", st)
	})
	return at
}

// withdrawn waits until a site imports a service from nobody.
func (w *world) withdrawn(s *lab.Site, service string) {
	w.t.Helper()
	w.awaitState(s, s.Name+" no longer imports "+service, func(st mcs.State) string {
		for _, i := range st.Imports {
			if i.Name.String() == service && len(i.Clusters) > 0 {
				return fmt.Sprintf("it is there: %+v", i)
			}
		}
		return ""
	})
}

// answers connects to an imported service until somebody answers, and says who.
func (w *world) answers(at netip.AddrPort) string {
	w.t.Helper()
	var who string
	w.await("a backend answers", func() string {
		c, err := dial(w.ctx, at.String())
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience.Left()))
		_, err = fmt.Fscanln(c, &who)
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return who
}

func TestServicesOfClusters(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	web, other := w.newPod("web-1"), w.newPod("web-2")
	vault := export("bank", "vault", true, web)
	exports := func(list ...mcs.Export) { w.Cloud.Gateway.Services().SetExports(append(list, vault)) }
	exports(export("shop", "web", true, web))
	if st, _ := w.Cloud.Gateway.Services().State(); len(st.Imports) != 2 || !st.Imports[0].Own {
		t.Fatalf("at once its own exports are: %+v", st)
	}
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop", "bank"})

	at := w.imported(w.Edge, "cloud", "shop/web")
	if who := w.answers(at); who != "web-1" {
		t.Errorf("%s answers", who)
	}
	if st, _ := w.Edge.Gateway.Services().State(); len(st.Imports) != 1 {
		t.Errorf("what is not granted is imported: %+v", st)
	}

	// A backend that is not ready gets nothing, and who waits is told at once when none is.
	one := export("shop", "web", true, other)
	one.Backends = append(one.Backends, export("shop", "web", false, web).Backends...)
	exports(one)
	for range 8 {
		if who := w.answers(at); who != "web-2" {
			t.Errorf("%s answers, which is not ready", who)
		}
	}
	exports(export("shop", "web", false, web, other))
	start := time.Now()
	c, err := dial(w.ctx, at.String())
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience.Left()))
		if _, err = c.Read(make([]byte, 1)); err == nil {
			t.Error("a backend answers that is not ready")
		}
		c.Close()
	}
	attempts := attemptsSince(start)

	// Both ends count it.
	for site, labels := range map[*lab.Site]string{w.Cloud: `direction="inbound",peer="edge",`, w.Edge: `direction="outbound",peer="cloud",`} {
		w.await(site.Name+" counts the connections", func() string {
			if n := w.metric(site, "postern_service_connections_total", labels+`service="shop/web"`); n < 9 {
				return fmt.Sprintf("it counts %v", n)
			}
			return ""
		})
	}
	var failures float64
	w.await("a failure for want of a ready backend is counted", func() string {
		if failures = w.metric(w.Cloud, "postern_service_failures_total", `direction="inbound",peer="edge",reason="none_ready",service="shop/web"`); failures < 1 {
			return "none is"
		}
		return ""
	})
	if failures > attempts {
		t.Errorf("%v failures for want of a ready backend are counted, of %v attempts", failures, attempts)
	}
	if n := w.metric(w.Cloud, "postern_service_ready_backends", `service="shop/web"`); n != 0 {
		t.Errorf("%v backends are said to be ready", n)
	}

	// An open connection ends with the grant, and the service is withdrawn.
	exports(export("shop", "web", true, web))
	w.answers(at)
	if c, err = dial(w.ctx, at.String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var who string
	if _, err := fmt.Fscanln(c, &who); err != nil {
		t.Fatal(err)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = nil })
	_ = c.SetDeadline(time.Now().Add(patience.Left()))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on without the grant: %v", err)
	}
	w.withdrawn(w.Edge, "shop/web")
	w.trade(w.Cloud, w.Edge, "shop")
	w.imported(w.Edge, "cloud", "shop/web")

	// Either side starts again.
	w.stop(w.Cloud)
	if st, _ := w.Edge.Gateway.Services().State(); len(st.Imports) != 1 {
		t.Errorf("a peer that is down exports no more: %+v", st)
	}
	w.start(w.Cloud)
	exports(export("shop", "web", true, web), export("shop", "api", true, other))
	if who := w.answers(w.imported(w.Edge, "cloud", "shop/api")); who != "web-2" {
		t.Errorf("%s answers", who)
	}
	if who := w.answers(w.imported(w.Edge, "cloud", "shop/web")); who != "web-1" {
		t.Errorf("%s answers", who)
	}
	w.stop(w.Edge)
	w.start(w.Edge)
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.awaitState(w.Edge, "edge hears cloud again", func(st mcs.State) string {
		if slices.Contains(st.Awaited, "cloud") {
			return "it has not"
		}
		if len(st.Imports) != 2 {
			t.Errorf("cloud was heard, and not all is there that it exports: %+v", st)
		}
		return ""
	})
	if who := w.answers(w.imported(w.Edge, "cloud", "shop/api")); who != "web-2" {
		t.Errorf("%s answers", who)
	}
}

// Datagrams, headless services and affinity cross as well.
func TestServicesOfClustersOfEveryKind(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "*")
	echo, err := netip.ParseAddrPort(udpEchoAt(t, hostAddress(t)))
	if err != nil {
		t.Fatal(err)
	}
	pods := []pod{w.newPod("db-0"), w.newPod("db-1"), w.newPod("db-2")}
	dns := export("shop", "dns", true)
	dns.Spec.Ports = []mcs.Port{{Name: "dns", Protocol: api.UDP, Port: 53}, {Name: "sctp", Protocol: mcs.SCTP, Port: 7}}
	dns.Backends = []mcs.Backend{{Addr: echo.Addr(), Ready: true, Ports: map[string]uint16{"dns": echo.Port()}}}
	db := export("shop", "db", true, pods...)
	db.Spec.Type = mcs.Headless
	for i := range db.Backends {
		db.Backends[i].Hostname = pods[i].name
	}
	db.Backends[2].Ready = false
	kept := export("shop", "kept", true, pods...)
	kept.Spec.Affinity = mcs.Affinity{ClientIP: true, Timeout: time.Hour}
	own := export("postern", "own", true, pods...)
	bad := export("shop", "bad", true)
	bad.Backends = []mcs.Backend{{Addr: netip.MustParseAddr("127.0.0.1"), Ready: true, Ports: map[string]uint16{"http": pods[0].address.Port()}}}
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{dns, db, kept, own, bad})
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop", "postern"})

	var headless mcs.Cluster
	w.awaitState(w.Edge, "edge imports all of them", func(st mcs.State) string {
		var names []string
		for _, i := range st.Imports {
			names = append(names, i.Name.Name)
			if i.Name.Name == "db" {
				headless = i.Clusters[0]
			}
		}
		if !slices.Equal(names, []string{"bad", "db", "dns", "kept"}) { // and not the gateway's namespace
			return fmt.Sprint(names)
		}
		return ""
	})
	if len(headless.Endpoints) != 2 {
		t.Fatalf("the backends that are ready are %+v", headless.Endpoints)
	}
	for _, e := range headless.Endpoints {
		if who := w.answers(e.Ports[0].At); who != e.Hostname {
			t.Errorf("%s answers for %s", who, e.Hostname)
		}
	}
	c := w.udpClient(api.ListenAddress{Addr: netip.MustParseAddr("127.0.0.1"),
		Ports: api.Ports{Protocol: api.UDP, First: w.imported(w.Edge, "cloud", "shop/dns").Port(), Last: w.imported(w.Edge, "cloud", "shop/dns").Port()}}.String())
	for _, size := range []int{1, 1200, 9000} {
		w.echoes(c, size)
	}
	at := w.imported(w.Edge, "cloud", "shop/kept")
	who := w.answers(at)
	for range 8 {
		if again := w.answers(at); again != who {
			t.Errorf("a client had %s and then %s", who, again)
		}
	}
	// Nobody has this gateway connect to itself.
	conn, err := dial(w.ctx, w.imported(w.Edge, "cloud", "shop/bad").String())
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(patience.Left()))
		if _, err = conn.Read(make([]byte, 1)); err == nil {
			t.Error("a backend at a loopback address is connected to")
		}
		conn.Close()
	}

	// Commands see all of it.
	listed := func(s *lab.Site, peer string) map[string]string {
		t.Helper()
		l, err := s.Gateway.ClusterServices(w.ctx, peer)
		if err != nil || !l.Enabled {
			t.Fatalf("%+v, %v", l, err)
		}
		out := map[string]string{}
		for _, x := range l.Services {
			out[x.Service] = strings.TrimSpace(fmt.Sprint(x.Direction, " ", x.Peer, " ", x.State, " ", x.Code))
			if x.State == api.ServiceRefused && (x.Cause == "" || x.Fix == "") {
				t.Errorf("it is not said why: %+v", x)
			}
		}
		return out
	}
	for site, want := range map[*lab.Site]map[string]string{
		w.Cloud: {"shop/bad": "exported edge ok", "shop/db": "exported edge ok", "shop/dns": "exported edge ok", "shop/kept": "exported edge ok", "postern/own": "exported  ungranted"},
		w.Edge:  {"shop/bad": "imported cloud failing PST0320", "shop/db": "imported cloud ok", "shop/dns": "imported cloud ok", "shop/kept": "imported cloud ok"},
	} {
		w.await(site.Name+" lists them", func() string { // the peer's answer may be on its way
			if got := listed(site, ""); !maps.Equal(got, want) {
				return fmt.Sprintf("%v, want %v", got, want)
			}
			return ""
		})
	}
	if got := listed(w.Cloud, "edge"); len(got) != 4 {
		t.Errorf("of edge cloud lists %v", got)
	}
	if _, err := w.Cloud.Gateway.ClusterServices(w.ctx, "nobody"); err == nil {
		t.Error("there is a peer nobody")
	}
	w.Edge.Gateway.Services().SetNamespaces([]string{"bank"})
	w.await("edge lists what it lacks the namespace of", func() string {
		if got := listed(w.Edge, "cloud"); got["shop/db"] != "imported cloud refused PST0904" {
			return fmt.Sprint(got)
		}
		return ""
	})
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.awaitState(w.Edge, "edge imports it again", func(st mcs.State) string { // somebody else may have taken the ports meanwhile
		i := slices.IndexFunc(st.Imports, func(i mcs.Import) bool { return i.Name.Name == "db" })
		if i < 0 || len(st.Imports[i].Clusters) != 1 || len(st.Imports[i].Clusters[0].Endpoints) != 2 {
			return fmt.Sprintf("%+v", st.Imports)
		}
		headless = st.Imports[i].Clusters[0]
		return ""
	})

	// What of a headless service is withdrawn goes by itself.
	db.Backends = db.Backends[1:]
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{dns, db, kept})
	w.awaitState(w.Edge, "the backend is gone", func(st mcs.State) string {
		for _, i := range st.Imports {
			if i.Name.Name == "db" && len(i.Clusters[0].Endpoints) == 1 && i.Clusters[0].Endpoints[0].Hostname == "db-1" {
				return ""
			}
		}
		return fmt.Sprintf("%+v", st.Imports)
	})
	if who := w.answers(headless.Endpoints[1].Ports[0].At); who != "db-1" {
		t.Errorf("the listener of what stays leads to %s", who)
	}
}

// A pod that wants it is told who connects, by an export and by name; what it is told next is the client's.
func TestPodsAreToldWhoConnects(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	ln, err := new(net.ListenConfig).Listen(w.ctx, "tcp", net.JoinHostPort(hostAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	told := &proxyproto.Listener{Listener: ln, ReadHeaderTimeout: patience.Left(), ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil }}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := told.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				h := c.(*proxyproto.Conn).ProxyHeader()
				if h == nil {
					return
				}
				if tlvs, err := h.TLVs(); err == nil && len(tlvs) == 1 {
					_, _ = fmt.Fprintf(c, "%s-%s\n", tlvs[0].Value, c.RemoteAddr().(*net.TCPAddr).IP)
				}
			})
		}
	})
	t.Cleanup(func() { told.Close(); serving.Wait() })
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	mail := export("shop", "mail", true, pod{"mail", at})
	exports := func() { w.Cloud.Gateway.Services().SetExports([]mcs.Export{mail}) }
	mail.Proxied = []string{"http"}
	exports()
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	p, _ := w.status(w.Cloud, "edge")
	want := "edge-" + p.Address
	imported := w.imported(w.Edge, "cloud", "shop/mail")
	if who := w.answers(imported); who != want {
		t.Errorf("the pod is told %s, want %s", who, want)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Services.Named = append(g.Services.Named, api.NamedService{Name: "mail", Port: 25, Address: at.String(), ProxyProtocol: api.ProxyV2})
		g.Peers[0].Allow = append(both, "mail")
	})
	w.mustEdit(w.Edge, func(g *api.GatewaySpec) {
		g.Peers[0].Local = &api.PeerLocal{Named: map[string]string{"mail": "127.0.0.1:0"}}
	})
	if who := w.answers(netip.MustParseAddrPort(w.localAddress(w.Edge, "cloud", "mail"))); who != want {
		t.Errorf("the server is told %s, want %s", who, want)
	}
	// As soon as the export no longer says so, a connection begins with what the client sends.
	mail.Proxied = nil
	exports()
	c, err := dial(w.ctx, imported.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience.Left()))
	if _, err := io.WriteString(c, "hello, who is there?\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); len(b) > 0 {
		t.Errorf("the pod is told who connects: %q, %v", b, err)
	}
}

// A gateway that no longer takes part exports nothing.
func TestServicesOfAClusterThatTakesNoPartAnyMore(t *testing.T) {
	var out atomic.Bool
	w := newWorld(t, func(site string, o *gateway.Options) {
		if clusters(site, o); site == "cloud" && out.Load() {
			in := *o.Config
			in.Kubernetes = &config.Kubernetes{}
			o.Config, o.Clusterset = &in, nil
		}
	})
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, w.newPod("web"))})
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.answers(w.imported(w.Edge, "cloud", "shop/web"))
	out.Store(true)
	w.stop(w.Cloud)
	w.start(w.Cloud)
	w.withdrawn(w.Edge, "shop/web")
	if st, _ := w.Edge.Gateway.Services().State(); len(st.Awaited) > 0 {
		t.Errorf("%v are waited for", st.Awaited)
	}
	if w.Cloud.Gateway.Services() != nil {
		t.Error("it takes part")
	}
}

// While pods come, go and fail, no connection that begins then gets one that is not ready, each gets
// one, and nothing is left of them.
func TestServicesOfAClusterWhilePodsComeAndGo(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	var pods []pod
	for i := range 4 {
		pods = append(pods, w.newPod(fmt.Sprint("web-", i)))
	}
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, pods...)})
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	at := w.imported(w.Edge, "cloud", "shop/web")
	w.answers(at)
	connected := 0
	for round := range 24 {
		x := export("shop", "web", true, pods[round%4])
		var ready []string
		for i, p := range pods {
			switch b := export("shop", "web", i == round%4 || (round>>(i%3))%2 == 0, p).Backends[0]; {
			case i == (round+1)%4: // it is gone
			case i != round%4:
				x.Backends = append(x.Backends, b)
				fallthrough
			default:
				if b.Ready {
					ready = append(ready, p.name)
				}
			}
		}
		w.Cloud.Gateway.Services().SetExports([]mcs.Export{x})
		var wg sync.WaitGroup
		who := make([]string, 4)
		for i := range who {
			wg.Go(func() {
				c, err := dial(w.ctx, at.String())
				if err != nil {
					who[i] = err.Error()
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience.Left()))
				if _, err := fmt.Fscanln(c, &who[i]); err != nil {
					who[i] = err.Error()
				}
			})
		}
		wg.Wait()
		for _, name := range who {
			if connected++; !slices.Contains(ready, name) {
				t.Errorf("round %d: %q answers, ready are %v", round, name, ready)
			}
		}
	}
	w.await("nothing is left of them", func() string {
		for _, s := range []*lab.Site{w.Cloud, w.Edge} {
			l, err := s.Gateway.ClusterServices(w.ctx, "")
			if err != nil || len(l.Services) != 1 || l.Services[0].Connections != 0 {
				return fmt.Sprintf("of %d connections %s lists %+v", connected, s.Name, l)
			}
		}
		return ""
	})
}

// A gateway that takes another key is the same cluster: nothing is withdrawn.
func TestServicesOfAClusterWithAnotherKey(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	exported := []mcs.Export{export("shop", "web", true, w.newPod("web"))}
	w.Cloud.Gateway.Services().SetExports(exported)
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	at := w.imported(w.Edge, "cloud", "shop/web")
	w.answers(at)
	out := w.rotate(w.Cloud, api.KeyRotateRequest{})
	w.Cloud.Gateway.Services().SetExports(exported)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if st, _ := w.Edge.Gateway.Services().State(); len(st.Imports) != 1 || len(st.Imports[0].Clusters) != 1 {
			t.Errorf("the service is withdrawn: %+v", st)
		}
		if p.PublicKey != out.PublicKey || p.State != api.StateConnected {
			return string(p.State)
		}
		return ""
	})
	if again := w.imported(w.Edge, "cloud", "shop/web"); again != at {
		t.Errorf("it is listened for at %s and then at %s", at, again)
	}
	w.answers(at)
	w.Cloud.Gateway.Services().SetExports(append(exported, export("shop", "api", true, w.newPod("api"))))
	w.answers(w.imported(w.Edge, "cloud", "shop/api"))
}

// As many services as there may be arrive, and a change of one at once; more are not told.
func TestAsManyServicesOfAClusterAsThereMayBe(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	p := w.newPod("web")
	var all []mcs.Export
	for i := range mcs.MaxServices + 1 {
		all = append(all, export("shop", fmt.Sprintf("web-%04d", i), true, p))
	}
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	start := time.Now()
	w.Cloud.Gateway.Services().SetExports(all)
	w.awaitState(w.Edge, "all are there", func(st mcs.State) string {
		if len(st.Imports) != mcs.MaxServices {
			return fmt.Sprintf("%d are", len(st.Imports))
		}
		return ""
	})
	t.Logf("%d services are there after %s", mcs.MaxServices, time.Since(start))
	st, _ := w.Cloud.Gateway.Services().State()
	if len(st.Problems) != 1 || st.Problems[0].Code != catalogue.CatalogueFull || st.Problems[0].Peer != "edge" {
		t.Errorf("the problems are %+v", st.Problems)
	}
	start = time.Now()
	all = slices.Clone(all)
	all[7].Spec.Ports = []mcs.Port{{Name: "http", Protocol: api.TCP, Port: 81}}
	w.Cloud.Gateway.Services().SetExports(all)
	w.awaitState(w.Edge, "a change is there", func(st mcs.State) string {
		for _, i := range st.Imports {
			if i.Name == all[7].Name && i.Spec.Ports[0].Port == 81 {
				return ""
			}
		}
		return "it is not"
	})
	t.Logf("a change is there after %s", time.Since(start))
	if who := w.answers(w.imported(w.Edge, "cloud", "shop/web-0007")); who != "web" {
		t.Errorf("%s answers", who)
	}
}

// A peer whose services have more ports than there may be listeners for one is imported in part, and
// in full once there is room.
func TestServicesOfAClusterWithTooManyPorts(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	p := w.newPod("web")
	const ports, count, most = 64, 32, 2000 // 48 ports too many
	var all []mcs.Export
	for i := range count {
		x := export("shop", fmt.Sprintf("web-%02d", i), true, p)
		x.Spec.Ports = nil
		for n := range ports {
			name := fmt.Sprintf("p%02d", n)
			x.Spec.Ports = append(x.Spec.Ports, mcs.Port{Name: name, Protocol: api.TCP, Port: uint16(80 + n)})
			x.Backends[0].Ports[name] = p.address.Port()
		}
		all = append(all, x)
	}
	listeners := func(st mcs.State) (n int) {
		for _, i := range st.Imports {
			for _, c := range i.Clusters {
				for _, e := range c.Endpoints {
					n += len(e.Ports)
				}
			}
		}
		return n
	}
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.Cloud.Gateway.Services().SetExports(all)
	w.awaitState(w.Edge, "as much as there is room for is imported", func(st mcs.State) string {
		// The one that is left out is the last to arrive.
		if n := listeners(st); n != most || len(st.Problems) != 1 || st.Problems[0].Code != catalogue.ImportsFull || st.Problems[0].Peer != "cloud" {
			return fmt.Sprintf("%d listeners, problems %+v", n, st.Problems)
		}
		return ""
	})
	w.Cloud.Gateway.Services().SetExports(all[1:])
	w.awaitState(w.Edge, "the rest is imported", func(st mcs.State) string {
		if n := listeners(st); n != ports*(count-1) || len(st.Problems) > 0 {
			return fmt.Sprintf("%d listeners, problems %+v", n, st.Problems)
		}
		return ""
	})
}
