package gateway_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/lab"
)

// clusterAtCloud has cloud alone live in a cluster.
func clusterAtCloud(site string, o *gateway.Options) {
	if site == "cloud" {
		clusters(site, o)
	}
}

// takes has a site export or import by what p says, with listeners here.
func (w *world) takes(s *lab.Site, p api.Peer) {
	w.t.Helper()
	w.mustEdit(s, func(g *api.GatewaySpec) { g.Peers = []api.Peer{p} })
}

// ownFaults are the codes of a site's own checks with services.
func (w *world) ownFaults(s *lab.Site) (codes []string) {
	w.t.Helper()
	report, err := s.Gateway.Checks(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range report.Checks {
		if strings.HasPrefix(c.Name, check.NameServices) {
			codes = append(codes, c.Code)
		}
	}
	return codes
}

// service waits until a site lists a service of a peer as it should be.
func (w *world) service(s *lab.Site, service string, want func(api.ClusterService) bool) (found api.ClusterService) {
	w.t.Helper()
	w.await(s.Name+" lists "+service+" as it should be", func() string {
		list, err := s.Gateway.ClusterServices(w.ctx, "")
		if err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(list.Services, func(x api.ClusterService) bool { return x.Service == service && want(x) })
		if i < 0 {
			return fmt.Sprintf("it lists %+v", list.Services)
		}
		found = list.Services[i]
		return ""
	})
	return found
}

// listensAt is what a service in use is, at so many addresses that begin so.
func listensAt(begin string, addresses int) func(api.ClusterService) bool {
	return func(x api.ClusterService) bool {
		return x.State == api.ServiceInUse && len(x.Addresses) == addresses &&
			!slices.ContainsFunc(x.Addresses, func(a string) bool { return !strings.HasPrefix(a, begin) })
	}
}

// A gateway without a cluster has what a cluster exports at listeners of its machine.
func TestServicesOfAClusterWithoutOne(t *testing.T) {
	w := newWorld(t, clusterAtCloud)
	w.peer()
	web := w.newPod("web-1")
	echo, err := netip.ParseAddrPort(udpEchoAt(t, hostAddress(t)))
	if err != nil {
		t.Fatal(err)
	}
	dns := export("shop", "dns", true)
	dns.Spec.Ports = []mcs.Port{{Name: "dns", Protocol: api.UDP, Port: 53}}
	dns.Backends = []mcs.Backend{{Addr: echo.Addr(), Ready: true, Ports: map[string]uint16{"dns": echo.Port()}}}
	exports := func() {
		w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, web), dns, export("bank", "vault", true, web)})
	}
	exports()
	w.takes(w.Cloud, api.Peer{Name: "edge", Services: &api.PeerServices{Export: []string{"*"}}})

	// Nothing is taken that nobody asked for, which is no fault.
	w.service(w.Edge, "shop/web", func(x api.ClusterService) bool { return x.Code == string(catalogue.ServiceNotWanted) })
	if faults := w.ownFaults(w.Edge); len(faults) > 0 {
		t.Errorf("its faults are %v", faults)
	}

	// One has an address, and the other a port.
	taken, err := new(net.ListenConfig).Listen(w.ctx, "tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	imports := api.Peer{Name: "cloud", Services: &api.PeerServices{Import: []string{"shop"}}}
	with := func(local map[string]string) api.Peer {
		p := imports
		p.Local = &api.PeerLocal{Services: local}
		return p
	}
	w.takes(w.Edge, with(map[string]string{"shop/web:80": "127.0.0.2:0"}))
	at := w.service(w.Edge, "shop/web", listensAt("127.0.0.2:", 1)).Addresses[0]
	if who := w.answers(netip.MustParseAddrPort(at)); who != "web-1" {
		t.Errorf("%s answers", who)
	}
	listed := w.service(w.Edge, "shop/dns", listensAt("127.0.0.1:", 1))
	port := listed.Addresses[0]
	if want := []api.ClusterListener{{Port: "53/UDP", Address: port}}; !slices.Equal(listed.Listeners, want) {
		t.Errorf("its listeners are %+v, want %+v", listed.Listeners, want)
	}
	w.echoes(w.udpClient(port+"/UDP"), 1200)

	// Nobody takes its datagrams any more, and again.
	nobody, err := net.ListenUDP("udp", &net.UDPAddr{IP: echo.Addr().AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	broken := dns
	broken.Backends = []mcs.Backend{{Addr: echo.Addr(), Ready: true, Ports: map[string]uint16{"dns": nobody.LocalAddr().(*net.UDPAddr).AddrPort().Port()}}}
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, web), broken})
	client := w.udpClient(port + "/UDP")
	w.service(w.Edge, "shop/dns", func(x api.ClusterService) bool {
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		return x.State == api.ServiceFailing && x.Code == string(catalogue.PeerServiceDown)
	})
	exports()
	w.echoes(client, 1200)
	w.service(w.Edge, "shop/dns", listensAt("127.0.0.1:", 1))

	// It moves, one that cannot be there says why, and one that is not exported too.
	w.takes(w.Edge, with(map[string]string{"shop/web:80": taken.Addr().String(), "shop/gone:1/UDP": "127.0.0.2:0/UDP", "shop/dns:5353/UDP": "127.0.0.2:0/UDP"}))
	x := w.service(w.Edge, "shop/web", func(x api.ClusterService) bool {
		return x.State == api.ServiceWaiting && x.Code == string(catalogue.LocalListener)
	})
	if !strings.Contains(x.Cause, taken.Addr().String()) || !strings.Contains(x.Fix, "local.services") {
		t.Errorf("it says %+v", x)
	}
	x = w.service(w.Edge, "shop/gone", func(x api.ClusterService) bool {
		return x.State == api.ServiceRefused && x.Code == string(catalogue.ImportMissing)
	})
	if !strings.Contains(x.Cause, "shop/gone:1/UDP") {
		t.Errorf("it says %+v", x)
	}
	x = w.service(w.Edge, "shop/dns", func(x api.ClusterService) bool { return x.Code == string(catalogue.ImportMissing) })
	if !strings.Contains(x.Cause, "does not export shop/dns:5353/UDP to this gateway, only shop/dns:53/UDP, so") {
		t.Errorf("it says %+v", x)
	}
	w.await("the checks have both", func() string {
		faults := w.ownFaults(w.Edge)
		if !slices.Contains(faults, string(catalogue.LocalListener)) || !slices.Contains(faults, string(catalogue.ImportMissing)) {
			return fmt.Sprint(faults)
		}
		return ""
	})
	taken.Close()
	at = w.service(w.Edge, "shop/web", listensAt("127.0.0.3:", 1)).Addresses[0]
	if who := w.answers(netip.MustParseAddrPort(at)); who != "web-1" {
		t.Errorf("%s answers", who)
	}

	// Either side starts again.
	w.takes(w.Edge, imports)
	w.takes(w.Edge, with(map[string]string{"shop/gone:1": "127.0.0.2:0"}))
	w.stop(w.Cloud)
	w.stop(w.Edge)
	w.start(w.Edge)
	w.service(w.Edge, "shop/gone", func(x api.ClusterService) bool { return x.State == api.ServiceWaiting && x.Code == "" })
	w.start(w.Cloud)
	exports()
	w.service(w.Edge, "shop/gone", func(x api.ClusterService) bool { return x.State == api.ServiceRefused })
	w.takes(w.Edge, imports)
	for _, s := range []*lab.Site{w.Cloud, w.Edge} {
		w.stop(s)
		w.start(s)
		exports()
		if who := w.answers(netip.MustParseAddrPort(w.service(w.Edge, "shop/web", listensAt("127.0.0.1:", 1)).Addresses[0])); who != "web-1" {
			t.Errorf("%s answers", who)
		}
	}

	// What is no longer imported ends.
	at = w.service(w.Edge, "shop/web", listensAt("127.0.0.1:", 1)).Addresses[0]
	w.takes(w.Edge, api.Peer{Name: "cloud"})
	w.service(w.Edge, "shop/web", func(x api.ClusterService) bool { return x.Code == string(catalogue.ServiceNotWanted) })
	if c, err := dial(w.ctx, at); err == nil {
		c.Close()
		t.Errorf("somebody listens at %s", at)
	}
}

// A cluster has what a gateway without one offers, as a service of its own.
func TestNamedServicesInACluster(t *testing.T) {
	w := newWorld(t, clusterAtCloud)
	w.peer()
	web := w.newPod("web-1")
	echo, err := netip.ParseAddrPort(udpEchoAt(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	offers := func(named ...api.NamedService) {
		w.mustEdit(w.Edge, func(g *api.GatewaySpec) {
			g.Services.Named = named
			g.Peers = []api.Peer{{Name: "cloud", Services: &api.PeerServices{Export: []string{"shop"}}}}
		})
	}
	printer := api.NamedService{Name: "printer", Port: 9100, Address: web.address.String(), Export: "shop/printer"}
	dns := api.NamedService{Name: "dns", Protocol: api.UDP, Ports: "52-53", Address: netip.AddrPortFrom(echo.Addr(), echo.Port()-1).String(), Export: "shop/printer"}
	offers(printer, dns, api.NamedService{Name: "vault", Port: 443, Address: web.address.String(), Export: "bank/vault"})
	w.Cloud.Gateway.Services().SetExports(nil)
	w.Cloud.Gateway.Services().SetNamespaces([]string{"shop", "bank"})
	w.takes(w.Cloud, api.Peer{Name: "edge", Services: &api.PeerServices{Import: []string{"*"}}})

	at := func() map[string]netip.AddrPort {
		out := map[string]netip.AddrPort{}
		w.awaitState(w.Cloud, "cloud imports the printer", func(st mcs.State) string {
			if len(st.Imports) != 1 || len(st.Imports[0].Clusters) != 1 {
				return fmt.Sprintf("the state is %+v", st)
			}
			for _, p := range st.Imports[0].Clusters[0].Endpoints[0].Ports {
				out[fmt.Sprint(p.Port.Name, " ", p.Port.Port, "/", p.Port.Protocol)] = p.At
			}
			return ""
		})
		return out
	}
	ports := at()
	if len(ports) != 3 {
		t.Fatalf("its ports are %v", ports)
	}
	if who := w.answers(ports["printer 9100/TCP"]); who != "web-1" {
		t.Errorf("%s answers", who)
	}
	w.echoes(w.udpClient(ports["dns-53 53/UDP"].String()+"/UDP"), 1200)
	w.service(w.Edge, "shop/printer", func(x api.ClusterService) bool {
		return x.Direction == api.ServiceExported && x.Peer == "cloud" && x.State == api.ServiceInUse
	})
	w.service(w.Edge, "bank/vault", func(x api.ClusterService) bool { return x.State == api.ServiceUngranted })

	// It leads elsewhere, comes again after a start, and ends.
	other := w.newPod("web-2")
	printer.Address = other.address.String()
	offers(printer)
	w.await("another answers", func() string {
		if who := w.answers(ports["printer 9100/TCP"]); who != "web-2" {
			return who + " does"
		}
		return ""
	})
	w.stop(w.Edge)
	w.start(w.Edge)
	if who := w.answers(ports["printer 9100/TCP"]); who != "web-2" {
		t.Errorf("%s answers after a start", who)
	}
	offers()
	w.withdrawn(w.Cloud, "shop/printer")
}
