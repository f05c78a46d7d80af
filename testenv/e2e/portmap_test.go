//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// The internet of the port mapping tests. Its public addresses are from a range that is used in
// the real internet, since miniupnpd refuses mappings behind private and documentation addresses.
// Nothing leaves the namespaces.
//
//	edge 192.168.7.2 ── 192.168.7.1 NAT with miniupnpd 44.0.0.20 ──┐ wan
//	joiner 44.0.0.10, or 192.168.8.2 ── symmetric NAT 44.0.0.30 ───┘
const (
	mappedOuter  = "44.0.0.20"
	mappedEdge   = "192.168.7.2"
	mappedRouter = "192.168.7.1"
	joinerPublic = "44.0.0.10"
)

// mappedWorld is a gateway behind a port-restricted NAT that maps ports, and one that joins it.
// There is neither a STUN server nor a relay.
type mappedWorld struct {
	t            *testing.T
	lab          *netlab.Lab
	wan          *netlab.Network
	nat          *netlab.NAT
	upnp         *netlab.UPnP
	edge, joiner *gateway
}

func newMappedWorld(t *testing.T, o netlab.UPnPOptions, joiner access, configure ...func(*api.GatewaySpec)) *mappedWorld {
	t.Helper()
	return newFirewalledWorld(t, []string{netlab.PortMapped()}, o, joiner, configure...)
}

// newFirewalledWorld is newMappedWorld with another firewall in edge's router.
func newFirewalledWorld(t *testing.T, firewall []string, o netlab.UPnPOptions, joiner access, configure ...func(*api.GatewaySpec)) *mappedWorld {
	t.Helper()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("44.0.0.0/24"))
	behind := func(name string, kind netlab.NATKind, outer, router, inner string) (*netlab.NAT, *netlab.Host) {
		lan := lab.Network(name+"-lan", netip.PrefixFrom(netip.MustParseAddr(inner), 24).Masked())
		nat := lab.NAT(name+"-nat", netlab.NATOptions{
			Kind: kind, WAN: wan, WANAddr: netip.MustParseAddr(outer),
			LAN: lan, LANAddr: netip.MustParseAddr(router), Firewall: firewall,
		})
		h := lab.Host(name)
		h.Attach("eth0", lan, netip.MustParseAddr(inner))
		h.DefaultRoute(netip.MustParseAddr(router))
		return nat, h
	}
	w := &mappedWorld{t: t, lab: lab, wan: wan}
	var edge, other *netlab.Host
	w.nat, edge = behind("edge", netlab.PortRestricted, mappedOuter, mappedRouter, mappedEdge)
	if joiner.public {
		other = lab.Host("joiner")
		other.Attach("eth0", wan, netip.MustParseAddr(joinerPublic))
	} else {
		_, other = behind("joiner", joiner.kind, "44.0.0.30", "192.168.8.1", "192.168.8.2")
	}
	w.upnp = w.nat.StartUPnP(o)
	w.edge = newGateway(t, edge, "edge", configure...)
	w.joiner = newGateway(t, other, "joiner")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("miniupnpd:\n%s", w.upnp.Log())
		}
	})
	return w
}

// tellable is the age from which a router's restart shows in its epoch.
const tellable = 6 * time.Second

func askRouter(spec *api.GatewaySpec) { spec.Discovery.PortMapping.Mode = "auto" }

// awaitMapping waits until netcheck shows a mapping by a protocol, and the router has it.
func (w *mappedWorld) awaitMapping(protocol string) api.PortMappingStatus {
	w.t.Helper()
	var m api.PortMappingStatus
	eventually(within(w.t, patience), w.t, "the router maps a port by "+protocol, func() (bool, string) {
		n, _, _ := w.edge.netCheck()
		m = n.PortMapping
		return m.State == "mapped" && m.Protocol == protocol && len(w.rules()) == 1, fmt.Sprintf("%+v, rules %q", m, w.rules())
	})
	return m
}

// rules returns the router's mappings.
func (w *mappedWorld) rules() []string {
	w.t.Helper()
	rules, err := w.upnp.Mappings(within(w.t, patience))
	if err != nil {
		w.t.Fatal(err)
	}
	return rules
}

// onlyNATPMP drops PCP requests (RFC 6887 §7.1: version 2), so that NAT-PMP gets its turn.
const onlyNATPMP = "udp dport 5351 @th,64,8 2"

// TestAMappedPortIsDialled: others join a gateway behind a NAT with only its ticket, by each
// protocol, from the internet and from behind a symmetric NAT.
func TestAMappedPortIsDialled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		protocol string
		o        netlab.UPnPOptions
		joiner   access
	}{
		{"PCP", netlab.UPnPOptions{}, dial},
		{"PCP", netlab.UPnPOptions{NoUPnP: true}, symmetric},
		{"NAT-PMP", netlab.UPnPOptions{NoUPnP: true}, symmetric},
		{"UPnP", netlab.UPnPOptions{NoPCP: true}, dial},
		{"UPnP", netlab.UPnPOptions{NoPCP: true}, symmetric},
	} {
		t.Run(c.protocol+", "+c.joiner.name, func(t *testing.T) {
			t.Parallel()
			w := newMappedWorld(t, c.o, c.joiner, askRouter)
			if c.protocol == "NAT-PMP" {
				w.nat.Drop(onlyNATPMP)
			}
			start := time.Now()
			w.edge.start()
			w.joiner.start()
			m := w.awaitMapping(c.protocol)
			t.Logf("mapped by %s %v after the start", c.protocol, time.Since(start).Round(100*time.Millisecond))
			if m.External != mappedOuter+":51820" || m.Internal != mappedEdge+":51820" || m.Router != mappedRouter ||
				m.LifetimeSeconds < 3000 || m.ExpiresAt == nil || m.Error != "" || m.Verified != "none" {
				t.Errorf("netcheck says %+v", m)
			}
			mapped := api.Candidate{Address: mappedOuter + ":51820", Source: api.SourcePortmap}
			if got := w.edge.status().Gateway.Candidates; !slices.Contains(got, mapped) {
				t.Errorf("candidates %+v, want %+v among them", got, mapped)
			}
			enrol(w.edge, w.joiner, nil, nil)
			p := w.joiner.waitPeer("edge", "directly at the mapped port", func(p api.PeerStatus) bool {
				return p.State == api.StateConnected && p.Path.Kind == api.PathDirect && p.Path.Remote == m.External
			})
			if p.Path.Source != api.SourcePortmap {
				t.Errorf("the path's source is %q, want %q", p.Path.Source, api.SourcePortmap)
			}
			w.edge.stop(syscall.SIGTERM)
			if rules := w.rules(); len(rules) != 0 {
				t.Errorf("after the gateway's end the router has %q, want nothing", rules)
			}
		})
	}
}

// TestAMappingIsProvenFromOutside has a STUN server with two addresses test a router's mapping:
// one that works, and one whose firewall blocks it.
func TestAMappingIsProvenFromOutside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		firewall        []string
		state, verified string
		why             string
	}{
		{"open", []string{netlab.PortMapped()}, "mapped", "inbound", ""},
		{"listed, but dead", nil, "useless", "", "the router lists " + mappedOuter + ":51820, but nothing from outside comes through"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const first, second = "44.0.0.40", "44.0.0.41"
			w := newFirewalledWorld(t, c.firewall, netlab.UPnPOptions{}, dial, askRouter, func(spec *api.GatewaySpec) {
				spec.Discovery.STUNServers = []string{first + ":3478"}
			})
			stun := w.lab.Host("stun")
			stun.Attach("eth0", w.wan, netip.MustParseAddr(first))
			stun.AddAddress("eth0", netip.PrefixFrom(netip.MustParseAddr(second), 24))
			stun.StartTURN(netlab.TURNOptions{Listen: []netip.Addr{netip.MustParseAddr(first), netip.MustParseAddr(second)}})
			w.edge.launch()
			if c.state == "useless" {
				// It is deleted and recreated before it is given up.
				w.edge.waitLog("port mapping is useless", c.why)
				w.edge.waitLog("deleted, to be recreated")
				v := w.edge.verdict("PST0450", mappedRouter, mappedOuter+":51820", "nothing from outside comes through")
				if !strings.Contains(v.Fix, "inbound UDP 51820") || v.Name != "portmap" {
					t.Errorf("got %+v, want what to allow", v)
				}
				return
			}
			w.edge.waitReady()
			eventually(within(t, patience), t, "the mapping is proven", func() (bool, string) {
				n, _, _ := w.edge.netCheck()
				return n.PortMapping.State == c.state && n.PortMapping.Verified == c.verified && n.Filtering == "endpoint-independent",
					fmt.Sprintf("%+v, filtering %s", n.PortMapping, n.Filtering)
			})
		})
	}
}

// TestTheRouterRestarts makes the daemon lose its mappings, noticed once by its epoch and once by
// a request for the mapping. The gateway is killed, which leaves a mapping behind.
func TestTheRouterRestarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		protocol string
		o        netlab.UPnPOptions
	}{{"PCP", netlab.UPnPOptions{}}, {"UPnP", netlab.UPnPOptions{NoPCP: true}}} {
		t.Run(c.protocol, func(t *testing.T) {
			t.Parallel()
			w := newMappedWorld(t, c.o, dial, askRouter)
			w.edge.start()
			w.joiner.start()
			w.awaitMapping(c.protocol)
			mapped := time.Now()
			enrol(w.edge, w.joiner, nil, nil)
			// A daemon that is 4 s old cannot be distinguished from a younger one (RFC 6887
			// §8.5).
			eventually(within(t, patience), t, "the daemon was asked again", func() (bool, string) {
				age := time.Since(mapped)
				w.edge.netCheck()
				return age > tellable, age.String()
			})
			w.upnp.Stop()
			if rules := w.rules(); len(rules) != 0 {
				t.Fatalf("after its end the router has %q", rules)
			}
			w.upnp.Start()
			start := time.Now()
			eventually(within(t, patience), t, "the mapping is made again", func() (bool, string) {
				return len(w.rules()) == 1, fmt.Sprint(w.rules())
			})
			t.Logf("made again %v after the restart", time.Since(start).Round(time.Second))
			w.awaitMapping(c.protocol)

			w.edge.stop(syscall.SIGKILL)
			if rules := w.rules(); len(rules) != 1 {
				t.Fatalf("a killed gateway leaves %q, want its mapping", rules)
			}
			w.edge.start()
			w.awaitMapping(c.protocol) // by the same protocol: it is recognised as ours
			w.joiner.waitConnected("edge")
		})
	}
}

// TestARefusingRouterIsNamed uses a router that refuses all mappings. With PCP miniupnpd would
// try all 65,536 ports before refusing, so the test uses UPnP.
func TestARefusingRouterIsNamed(t *testing.T) {
	t.Parallel()
	w := newMappedWorld(t, netlab.UPnPOptions{NoPCP: true, Refuse: true}, dial, askRouter)
	w.edge.start()
	var n api.NetCheck
	eventually(within(t, patience), t, "netcheck names the refusal", func() (bool, string) {
		n, _, _ = w.edge.netCheck()
		return n.PortMapping.State == "failed", fmt.Sprintf("%+v", n.PortMapping)
	})
	for _, word := range []string{"PCP: port 5351 of the router is closed", "UPnP: AddPortMapping: error 606, not authorized"} {
		if !strings.Contains(n.PortMapping.Error, word) {
			t.Errorf("the reason is %q, want %q in it", n.PortMapping.Error, word)
		}
	}
	w.edge.verdict("PST0451", mappedRouter, "error 606, not authorized")
	if !slices.ContainsFunc(n.Hints, func(h string) bool {
		return strings.Contains(h, mappedRouter) && strings.Contains(h, "spec.discovery.advertise")
	}) {
		t.Errorf("hints %q, want one that names the router and what to do", n.Hints)
	}
}

// TestALeaseEnds has a router that grants half a minute and then falls silent. The mapping is not
// announced beyond its lifetime, and created again when the router answers.
func TestALeaseEnds(t *testing.T) {
	t.Parallel()
	w := newMappedWorld(t, netlab.UPnPOptions{NoUPnP: true, Lifetime: 30}, dial, askRouter)
	w.edge.start()
	m := w.awaitMapping("PCP")
	if m.LifetimeSeconds > 30 {
		t.Errorf("the lease is %v s, want 30 at most", m.LifetimeSeconds)
	}
	announced := func() bool {
		return slices.ContainsFunc(w.edge.status().Gateway.Candidates, func(c api.Candidate) bool { return c.Source == api.SourcePortmap })
	}
	silent := w.nat.Drop("udp dport 5351")
	start := time.Now()
	eventually(within(t, patience), t, "the mapping has ended", func() (bool, string) { return !announced(), "it is announced" })
	late(t, "a mapping of 30 s is announced no more", time.Since(start), 35*time.Second)
	w.edge.waitLog("it expired, and the router did not renew it")
	w.edge.verdict("PST0452", mappedRouter, "PCP: no answer")
	silent.Remove()
	w.awaitMapping("PCP")
	eventually(within(t, patience), t, "the mapping is announced again", func() (bool, string) { return announced(), "it is not" })
}

// TestALyingRouterIsNamed has a router that claims another address than STUN servers see.
func TestALyingRouterIsNamed(t *testing.T) {
	t.Parallel()
	const server, claim = "44.0.0.40", "44.0.0.99"
	w := newMappedWorld(t, netlab.UPnPOptions{Claim: netip.MustParseAddr(claim)}, dial, askRouter, func(spec *api.GatewaySpec) {
		spec.Discovery.STUNServers = []string{server + ":3478"}
	})
	stun := w.lab.Host("stun")
	stun.Attach("eth0", w.wan, netip.MustParseAddr(server))
	stun.StartTURN(netlab.TURNOptions{Listen: []netip.Addr{netip.MustParseAddr(server)}})
	w.edge.start()
	v := w.edge.verdict("PST0454", mappedRouter, claim+":51820", mappedOuter)
	if !strings.Contains(v.Fix, "spec.discovery.advertise") {
		t.Errorf("the fix is %q, want what to set", v.Fix)
	}
	for _, c := range w.edge.status().Gateway.Candidates {
		if strings.HasPrefix(c.Address, claim) {
			t.Errorf("%+v is announced", c)
		}
	}
}

// TestNoRouterIsAskedUnlessToldTo counts what a gateway sends to the router and to the groups of
// SSDP and multicast DNS, and shows that nobody gets in then.
func TestNoRouterIsAskedUnlessToldTo(t *testing.T) {
	t.Parallel()
	w := newMappedWorld(t, netlab.UPnPOptions{}, dial)
	meter := w.edge.host.MeterSent("udp dport { 5350, 5351, 1900, 5353 }", "ip daddr 224.0.0.0/4")
	w.edge.start()
	w.joiner.start()
	ticket := w.edge.invite()
	r := w.joiner.postern(within(t, patience), "join", ticket, "--wait", "5s")
	if r.code != 1 {
		t.Errorf("join without a way: exit code %d, want 1\n%s", r.code, r.stderr)
	}
	n, _, _ := w.edge.netCheck()
	if n.PortMapping.Mode != "off" || n.PortMapping.State != "off" {
		t.Errorf("netcheck says %+v, want off", n.PortMapping)
	}
	if _, out, err := meter.Read(within(t, patience)); err != nil || out.Packets != 0 {
		t.Errorf("%d datagrams were sent to routers and groups (%v), want none", out.Packets, err)
	}
	if rules := w.rules(); len(rules) != 0 {
		t.Errorf("the router has %q, want nothing", rules)
	}
	// Once a reload enables it, the same gateway can be reached.
	askRouter(&w.edge.doc.Spec)
	w.edge.writeConfig()
	if err := w.edge.proc.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	w.awaitMapping("PCP")
	enrol(w.edge, w.joiner, nil, nil)

	// A reload that does not change portMapping does not change the mapping.
	const advertised = mappedOuter + ":40000"
	w.edge.doc.Spec.Discovery.Advertise = []string{advertised}
	w.edge.writeConfig()
	if err := w.edge.proc.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(within(t, patience), t, "the reload was applied", func() (bool, string) {
		got := w.edge.status().Gateway.Candidates
		has := func(source string) bool {
			return slices.ContainsFunc(got, func(c api.Candidate) bool { return c.Source == source })
		}
		return has(api.SourceAdvertised) && has(api.SourcePortmap), fmt.Sprint(got)
	})
	if log := w.upnp.Log(); strings.Contains(log, "mapping removed") {
		t.Errorf("the reload had the mapping withdrawn:\n%s", log)
	}
}
