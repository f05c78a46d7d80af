//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/netlab"
)

// The internet of the DNS tests: all hosts on one network, with both families.
//
//	name server .53 and ::53 ── cloud .10 and ::10 ── edge .20 and ::20 ── third .30
const (
	dnsDomain = "example.com"
	dnsAddr   = "198.51.100.53"
	dnsCloud  = "198.51.100.10"
	dnsCloud2 = "198.51.100.11"
	dnsEdge   = "198.51.100.20"
	dnsThird  = "198.51.100.30"
	dnsCloud6 = "2001:db8::10"
	dnsEdge6  = "2001:db8::20"
)

// dnsWorld has cloud and edge, which know each other's keys but no addresses. cloud may have
// several addresses.
type dnsWorld struct {
	t           *testing.T
	lab         *netlab.Lab
	wan         *netlab.Network
	ns          *netlab.Host
	zone        *netlab.Zone
	cloud, edge *gateway
	cloudKey    string
}

// serveZone starts a name server.
type serveZone func(h *netlab.Host, domain string, addr netip.Addr, text string) *netlab.Zone

func newDNSWorld(t *testing.T, serve serveZone, cloudToo ...string) *dnsWorld {
	t.Helper()
	w := &dnsWorld{t: t, lab: netlab.New(t)}
	w.wan = w.lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	w.start(serve, w.host("cloud", dnsCloud, cloudToo...))
	return w
}

// newForwardedDNSWorld has cloud behind a router with two addresses, which forwards the port on
// both.
func newForwardedDNSWorld(t *testing.T, serve serveZone) (*dnsWorld, *netlab.NAT) {
	t.Helper()
	w := &dnsWorld{t: t, lab: netlab.New(t)}
	w.wan = w.lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	inner, router := netip.MustParseAddr("192.168.9.2"), netip.MustParseAddr("192.168.9.1")
	lan := w.lab.Network("lan", netip.MustParsePrefix("192.168.9.0/24"))
	nat := w.lab.NAT("nat", netlab.NATOptions{
		Kind: netlab.PortRestricted, WAN: w.wan, WANAddr: netip.MustParseAddr(dnsCloud), LAN: lan, LANAddr: router,
	})
	nat.AddAddress("w0", netip.PrefixFrom(netip.MustParseAddr(dnsCloud2), 24))
	nat.Forward(gatewayPort, netip.AddrPortFrom(inner, gatewayPort))
	h := w.lab.Host("cloud")
	h.Attach("eth0", lan, inner)
	h.DefaultRoute(router)
	w.start(serve, h)
	return w, nat
}

// host creates a host on the network.
func (w *dnsWorld) host(name, addr string, more ...string) *netlab.Host {
	w.t.Helper()
	h := w.lab.Host(name)
	h.Attach("eth0", w.wan, netip.MustParseAddr(addr))
	for _, a := range more {
		ip := netip.MustParseAddr(a)
		h.AddAddress("eth0", netip.PrefixFrom(ip, map[bool]int{true: 24, false: 64}[ip.Is4()]))
	}
	return h
}

// start runs the name server and the gateways.
func (w *dnsWorld) start(serve serveZone, cloud *netlab.Host) {
	t := w.t
	t.Helper()
	w.ns = w.host("ns", dnsAddr)
	w.zone = serve(w.ns, dnsDomain, netip.MustParseAddr(dnsAddr), "")
	w.cloud = newGateway(t, cloud, "cloud").start()
	w.edge = newGateway(t, w.host("edge", dnsEdge, dnsEdge6), "edge").start()
	w.cloudKey = w.cloud.status().Gateway.PublicKey
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the name server:\n%s", w.zone.Log())
		}
	})
}

func named(h *netlab.Host, domain string, addr netip.Addr, text string) *netlab.Zone {
	return h.StartNamed(domain, addr, text)
}

func dnsmasq(h *netlab.Host, domain string, addr netip.Addr, text string) *netlab.Zone {
	return h.StartDnsmasq(domain, addr, text)
}

// introduce gives each the other's key, and makes edge browse the domain.
func (w *dnsWorld) introduce() {
	w.t.Helper()
	edgeKey := w.edge.status().Gateway.PublicKey
	w.cloud.doc.Spec.Peers = []api.Peer{{Name: "edge", PublicKey: edgeKey}}
	w.edge.doc.Spec.Peers = []api.Peer{{Name: "cloud", PublicKey: w.cloudKey}}
	w.cloud.reload()
	w.browse()
}

// browse makes edge browse the domain.
func (w *dnsWorld) browse() {
	w.t.Helper()
	w.edge.doc.Spec.Discovery.DNS = api.DNS{Domains: []string{dnsDomain}, Servers: []string{dnsAddr}}
	w.edge.reload()
}

// reload makes a gateway reload its configuration.
func (g *gateway) reload() {
	g.t.Helper()
	before := strings.Count(g.proc.Stderr(), "configuration applied")
	g.writeConfig()
	if err := g.proc.Signal(syscall.SIGHUP); err != nil {
		g.t.Fatal(err)
	}
	applied := func(log string) bool { return strings.Count(log, "configuration applied") > before }
	if _, err := g.proc.WaitStderr(within(g.t, patience), applied); err != nil {
		g.t.Fatalf("%s does not apply its configuration: %v", g.name, err)
	}
}

// records returns cloud's records, as it prints them.
func (w *dnsWorld) records(args ...string) string {
	w.t.Helper()
	return w.cloud.must(append([]string{"dns-records", "--domain", dnsDomain, "--ttl", "5s"}, args...)...)
}

// handmade returns records of cloud that lead to hosts by name.
func (w *dnsWorld) handmade(lines ...string) string {
	return fmt.Sprintf("_postern._udp PTR cloud._postern._udp\ncloud._postern._udp TXT \"v=1\" \"pk=%s\"\n%s\n", w.cloudKey, strings.Join(lines, "\n"))
}

// found waits until edge is connected with cloud at an address from DNS.
func (w *dnsWorld) found(remote string) api.PeerStatus {
	w.t.Helper()
	return w.edge.waitPeer("cloud", "connected at "+remote, func(p api.PeerStatus) bool {
		return p.State == api.StateConnected && p.Path.Kind == api.PathDirect && p.Path.Remote == remote && p.Path.Source == api.SourceDNS
	})
}

// verdict waits for a check of the gateway itself with a code.
func (g *gateway) verdict(code string, words ...string) api.Check {
	g.t.Helper()
	var got api.Check
	eventually(within(g.t, patience), g.t, fmt.Sprintf("%s shows %s with %q", g.name, code, words), func() (bool, string) {
		r := g.postern(within(g.t, patience), "check", "-o", "json")
		var report api.CheckReport
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
			return false, r.stderr
		}
		for _, c := range report.Checks {
			if c.Peer == "" && c.Code == code && containsAll(c.Cause, words...) {
				got = c
				return true, ""
			}
		}
		return false, r.stdout
	})
	return got
}

// discovered waits until a discovered gateway satisfies ok.
func (g *gateway) discovered(what string, ok func(d api.Discovered) bool) api.Discovered {
	g.t.Helper()
	var got api.Discovered
	eventually(within(g.t, patience), g.t, g.name+" discovers "+what, func() (bool, string) {
		r := g.postern(within(g.t, patience), "discover", "-o", "json")
		var list api.DiscoveredList
		if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
			return false, r.stdout + r.stderr
		}
		i := slices.IndexFunc(list.Gateways, ok)
		if i >= 0 {
			got = list.Gateways[i]
		}
		return i >= 0, r.stdout
	})
	return got
}

// TestAPeerIsFoundInDNS has edge find cloud in the zone that cloud printed, with each name
// server, both as configured and as the system's resolver.
func TestAPeerIsFoundInDNS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		serve  serveZone
		system bool
	}{{"named", named, false}, {"dnsmasq", dnsmasq, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newDNSWorld(t, c.serve)
			w.introduce()
			if c.system {
				w.edge.stop(syscall.SIGTERM)
				w.edge.doc.Spec.Discovery.DNS.Servers = nil
				w.edge.writeConfig()
				w.edge.launchWithServers("nameserver " + dnsAddr + "\n")
				w.edge.waitReady()
			}
			empty := w.edge.verdict("PST0442", dnsDomain, "_postern._udp."+dnsDomain)
			if !strings.Contains(empty.Fix, "postern dns-records --domain "+dnsDomain) {
				t.Errorf("the fix is %q, want the command that makes the records", empty.Fix)
			}
			records := w.records()
			w.zone.Set(records)
			start := time.Now()
			p := w.found(dnsCloud + ":51820")
			t.Logf("connected %v after the zone was loaded; that it was empty holds for 5 s\n%s", time.Since(start).Round(100*time.Millisecond), records)
			if want := (api.Candidate{Address: dnsCloud + ":51820", Source: api.SourceDNS}); len(p.Candidates) != 1 || p.Candidates[0].Address != want.Address || p.Candidates[0].Source != want.Source {
				t.Errorf("candidates %+v, want %+v alone", p.Candidates, want)
			}
			d := w.edge.discovered("cloud", func(d api.Discovered) bool { return d.Name.String() == "cloud" && d.State == api.DiscoveredPeer })
			if d.Source != api.SourceDNS || d.Domain != dnsDomain || d.PublicKey != w.cloudKey || d.DNSSEC != api.DNSSECNone || len(d.Addresses) != 1 {
				t.Errorf("discovered %+v", d)
			}
		})
	}
}

// launchWithServers runs the gateway with its own resolv.conf.
func (g *gateway) launchWithServers(resolvConf string) {
	g.t.Helper()
	file := g.dir + "/resolv.conf"
	writeFile(g.t, file, resolvConf, 0o644)
	g.proc = g.host.Start(netlab.Command{Args: []string{
		"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, file,
		g.bin, "gateway", "--config", g.configFile(),
	}})
}

// TestSRVPriorities makes the first of two targets fail, and work again.
func TestSRVPriorities(t *testing.T) {
	t.Parallel()
	w, router := newForwardedDNSWorld(t, named)
	w.zone.Set(w.handmade("cloud._postern._udp SRV 20 0 51820 b", "cloud._postern._udp SRV 10 0 51820 a", "a A "+dnsCloud2, "b A "+dnsCloud))
	w.introduce()
	// Both are probed: what only a handshake has proved may change at any time.
	at := func(selected, other string, state path.State) {
		t.Helper()
		w.edge.waitPeer("cloud", "at "+selected+", with the other "+state.String(), func(p api.PeerStatus) bool {
			has := func(address string, state path.State) bool {
				return slices.ContainsFunc(p.Candidates, func(c api.Candidate) bool {
					return c.Address == address+":51820" && c.State == state.String() && (c.RTTSeconds > 0 || state == path.Failed)
				})
			}
			return p.State == api.StateConnected && p.Path.Source == api.SourceDNS && has(selected, path.Selected) && has(other, state)
		})
	}
	at(dnsCloud2, dnsCloud, path.Valid)
	dead := router.Drop("ip daddr " + dnsCloud2)
	start := time.Now()
	at(dnsCloud, dnsCloud2, path.Failed)
	t.Logf("on the second target, and the first one given up, %v after that failed", time.Since(start).Round(100*time.Millisecond))
	dead.Remove()
	start = time.Now()
	at(dnsCloud2, dnsCloud, path.Valid)
	t.Logf("on the first target %v after it works again", time.Since(start).Round(100*time.Millisecond))
}

// TestAChangedRecordIsFollowed has a zone that first leads nowhere and then to cloud.
func TestAChangedRecordIsFollowed(t *testing.T) {
	t.Parallel()
	w := newDNSWorld(t, named)
	w.zone.Set(w.handmade("cloud._postern._udp SRV 10 0 51820 gw", "gw 6 A 198.51.100.99"))
	w.introduce()
	w.edge.waitPeer("cloud", "tried where nobody is", func(p api.PeerStatus) bool {
		return slices.ContainsFunc(p.Candidates, func(c api.Candidate) bool {
			return c.Address == "198.51.100.99:51820" && c.Source == api.SourceDNS
		})
	})
	w.zone.Set(w.handmade("cloud._postern._udp SRV 10 0 51820 gw", "gw 6 A "+dnsCloud))
	start := time.Now()
	w.found(dnsCloud + ":51820")
	took := time.Since(start)
	t.Logf("connected %v after the change; the record lives 6 s", took.Round(100*time.Millisecond))
	// A server that goes away takes nothing with it, and is named.
	w.zone.Stop()
	gone := w.edge.verdict("PST0441", dnsDomain, dnsAddr, "the last good answer holds")
	if !strings.Contains(gone.Fix, "spec.discovery.dns.servers") {
		t.Errorf("the fix is %q, want what to set", gone.Fix)
	}
	w.found(dnsCloud + ":51820")
	w.zone.Set("")
}

// TestIPv6AndAliases finds cloud only by IPv6, through an alias, and in an answer that is too
// long for a datagram.
func TestIPv6AndAliases(t *testing.T) {
	t.Parallel()
	crowd := ""
	for n := range 60 {
		crowd += fmt.Sprintf("_postern._udp PTR somebody-with-a-long-name-%d._postern._udp\n", n)
	}
	for _, c := range []struct {
		name, remote string
		lines        []string
	}{
		{"IPv6 alone", "[" + dnsCloud6 + "]:51820", []string{"cloud._postern._udp SRV 10 0 51820 gw", "gw AAAA " + dnsCloud6}},
		{"an alias for the host", dnsCloud + ":51820", []string{"cloud._postern._udp SRV 10 0 51820 gw", "gw CNAME real.hosts", "real.hosts A " + dnsCloud}},
		{"in a crowd", dnsCloud + ":51820", []string{"cloud._postern._udp SRV 10 0 51820 gw", "gw A " + dnsCloud, crowd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newDNSWorld(t, named, dnsCloud6)
			w.zone.Set(w.handmade(c.lines...))
			w.introduce()
			w.found(c.remote)
		})
	}
}

// TestBadRecordsAreNamed changes one record at a time.
func TestBadRecordsAreNamed(t *testing.T) {
	t.Parallel()
	w := newDNSWorld(t, named)
	w.browse()
	const srv, host = "cloud._postern._udp SRV 10 0 51820 gw", "gw A " + dnsCloud
	txt := func(s string) string { return "_postern._udp PTR cloud._postern._udp\n" + srv + "\n" + host + "\n" + s }
	for _, c := range []struct{ name, zone, words string }{
		{"no SRV", w.handmade(host), "SRV cloud._postern._udp.example.com is wrong: does not exist"},
		{"no TXT", txt(""), "TXT cloud._postern._udp.example.com is wrong: does not exist"},
		{"no key", txt(`cloud._postern._udp TXT "v=1"`), "has no public key (pk=)"},
		{"a key that is none", txt(`cloud._postern._udp TXT "v=1" "pk=abc"`), `has a public key that is none: pk="abc"`},
		{"too much TXT", txt("cloud._postern._udp TXT \"v=1\" " + strings.Repeat(`"`+strings.Repeat("x", 250)+`" `, 5)), "has 1259 bytes, and at most 1024 are read"},
		{"gone", w.handmade("cloud._postern._udp SRV 0 0 0 ."), `has the target "."`},
		{"no address", w.handmade(srv), "leads to gw.example.com, which does not exist"},
		{"a circle", w.handmade(srv, "gw CNAME a", "a CNAME gw"), "the aliases (CNAME) lead in a circle"},
		{"the metadata service", w.handmade(srv, "gw A 169.254.169.254"), "which is not dialled: the address of a cloud's metadata service"},
		{"edge itself", w.handmade(srv, "gw A "+dnsEdge), "which is not dialled: an address of this host"},
		{"another service", "_postern._udp PTR x._ssh._tcp", "which is no instance of this service"},
	} {
		w.zone.Set(c.zone)
		v := w.edge.verdict("PST0443", c.words)
		if !strings.Contains(v.Fix, "postern dns-records --domain "+dnsDomain) {
			t.Errorf("%s: the fix is %q, want the command that prints the right lines", c.name, v.Fix)
		}
	}
}

// TestAKeyThatChangesInDNSIsNotFollowed has someone put their own key and address into the zone.
func TestAKeyThatChangesInDNSIsNotFollowed(t *testing.T) {
	t.Parallel()
	w := newDNSWorld(t, named)
	w.zone.Set(w.records())
	w.introduce()
	w.found(dnsCloud + ":51820")

	mallory := w.lab.Host("mallory")
	mallory.Attach("eth0", w.wan, netip.MustParseAddr(dnsThird))
	other := newGateway(t, mallory, "cloud").start() // with the same name
	lines := other.must("dns-records", "--domain", dnsDomain, "--ttl", "5s")
	sent := w.edge.host.MeterSent("ip daddr " + dnsThird)
	w.zone.Set(lines)
	check := func() {
		t.Helper()
		v := w.edge.verdict("PST0440", "cloud._postern._udp."+dnsDomain, "cloud")
		if v.Verdict.Verdict != api.Error || !strings.Contains(v.Fix, "postern peer remove cloud") {
			t.Errorf("got %+v, want an error that says how to take the new key", v)
		}
		d := w.edge.discovered("the other key", func(d api.Discovered) bool { return d.State == api.DiscoveredConflict })
		if d.Name.String() != "cloud" || d.Peer != "cloud" || d.Code != "PST0440" || d.PublicKey == w.cloudKey || d.Problem.IsZero() {
			t.Errorf("discovered %+v", d)
		}
	}
	check()
	w.edge.refused(1, []string{"cloud"}, "peer", "approve", "cloud", "--fingerprint", other.discover().Fingerprint)
	if p := w.edge.waitConnected("cloud"); p.PublicKey != w.cloudKey {
		t.Errorf("peer cloud has the key %s, want %s as before", p.PublicKey, w.cloudKey)
	}
	// The gateway remembers whose record that was.
	w.edge.stop(syscall.SIGTERM)
	w.edge.start()
	check()
	if _, out, err := sent.Read(within(t, patience)); err != nil || out.Packets != 0 {
		t.Errorf("%d datagrams were sent to whom the record names now (%v), want none", out.Packets, err)
	}
}

// TestAStrangerInDNSIsApproved has each side find the other and approve it by name.
func TestAStrangerInDNSIsApproved(t *testing.T) {
	t.Parallel()
	w := newDNSWorld(t, named)
	w.zone.Set(w.records() + w.edge.must("dns-records", "--domain", dnsDomain, "--ttl", "5s"))
	w.cloud.doc.Spec.Discovery.DNS = api.DNS{Domains: []string{dnsDomain}, Servers: []string{dnsAddr}}
	w.cloud.reload()
	w.browse()
	for _, g := range []*gateway{w.edge, w.cloud} {
		other := map[string]string{"edge": "cloud", "cloud": "edge"}[g.name]
		d := g.discovered(other, func(d api.Discovered) bool { return d.Name.String() == other })
		if d.State != api.DiscoveredNew || d.Fingerprint == "" {
			t.Errorf("%s discovers %+v, want it new", g.name, d)
		}
		if _, known := g.peer(other); known {
			t.Errorf("%s has %s as a peer without being told", g.name, other)
		}
		g.must("peer", "approve", other, "--fingerprint", d.Fingerprint)
	}
	w.found(dnsCloud + ":51820")
	w.cloud.waitConnected("edge")
}

// TestDNSSECIsShown queries a signed zone through validating resolvers: one with the zone's key,
// and one with another.
func TestDNSSECIsShown(t *testing.T) {
	t.Parallel()
	const good, bad = "198.51.100.54", "198.51.100.55"
	w := newDNSWorld(t, func(h *netlab.Host, domain string, addr netip.Addr, text string) *netlab.Zone {
		return h.StartSignedNamed(domain, addr, text)
	})
	w.zone.Set(w.records())
	anchor := w.zone.Anchor()
	other := strings.Replace(anchor, anchor[len(anchor)-12:len(anchor)-8], "AAAA", 1)
	w.host("validator", good).StartValidator(dnsDomain, netip.MustParseAddr(dnsAddr), netip.MustParseAddr(good), anchor)
	w.host("misled", bad).StartValidator(dnsDomain, netip.MustParseAddr(dnsAddr), netip.MustParseAddr(bad), other)

	w.edge.doc.Spec.Discovery.DNS = api.DNS{Domains: []string{dnsDomain}, Servers: []string{good}}
	w.edge.reload()
	w.edge.discovered("cloud by validated records", func(d api.Discovered) bool {
		return d.Name.String() == "cloud" && d.PublicKey == w.cloudKey && d.DNSSEC == api.DNSSECValidated
	})
	w.edge.doc.Spec.Discovery.DNS.Servers = []string{bad}
	w.edge.reload()
	v := w.edge.verdict("PST0444", dnsDomain, bad, "SERVFAIL")
	if !strings.Contains(v.Fix, "delv") {
		t.Errorf("the fix is %q, want the command that shows it", v.Fix)
	}
}
