package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/lab"
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
	deadline := time.After(patience)
	for {
		state, changed := s.Gateway.Services().State()
		missing := want(state)
		if missing == "" {
			return state
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("waited %s until %s: %s", patience, what, missing)
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
		_ = c.SetDeadline(time.Now().Add(patience))
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
	exported := []mcs.Export{export("shop", "web", true, web), export("bank", "vault", true, web)}
	w.Cloud.Gateway.Services().SetExports(exported)
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
	exported[0] = export("shop", "web", true, other)
	exported[0].Backends = append(exported[0].Backends, export("shop", "web", false, web).Backends...)
	w.Cloud.Gateway.Services().SetExports(exported)
	for range 8 {
		if who := w.answers(at); who != "web-2" {
			t.Errorf("%s answers, which is not ready", who)
		}
	}
	exported[0] = export("shop", "web", false, web, other)
	w.Cloud.Gateway.Services().SetExports(exported)
	c, err := dial(w.ctx, at.String())
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err = c.Read(make([]byte, 1)); err == nil {
			t.Error("a backend answers that is not ready")
		}
		c.Close()
	}

	// An open connection ends with the grant, and the service is withdrawn.
	exported[0] = export("shop", "web", true, web)
	w.Cloud.Gateway.Services().SetExports(exported)
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
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
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
	w.Cloud.Gateway.Services().SetExports(append(exported, export("shop", "api", true, other)))
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
		if slices.Contains(st.Unheard, "cloud") {
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
