//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// lanWorld is a network of gateways that do not know each other: 192.168.1.1, .2 and so on, and
// 2001:db8:1::1, ::2.
type lanWorld struct {
	t     *testing.T
	lab   *netlab.Lab
	net   *netlab.Network
	hosts int
}

func newLANWorld(t *testing.T) *lanWorld {
	t.Helper()
	lab := netlab.New(t)
	return &lanWorld{t: t, lab: lab, net: lab.Network("lan", netip.MustParsePrefix("192.168.1.0/24"))}
}

func (w *lanWorld) host(name string) *netlab.Host {
	w.t.Helper()
	w.hosts++
	h := w.lab.Host(name)
	h.Attach("eth0", w.net, netip.AddrFrom4([4]byte{192, 168, 1, byte(w.hosts)}))
	h.AddAddress("eth0", netip.MustParsePrefix(fmt.Sprintf("2001:db8:1::%d/64", w.hosts)))
	return h
}

// gateway creates a gateway that looks for others, unless configured otherwise. Its host may have
// another name.
func (w *lanWorld) gateway(host, name string, configure ...func(*api.GatewaySpec)) *gateway {
	w.t.Helper()
	return newGateway(w.t, w.host(host), name, append([]func(*api.GatewaySpec){onLAN}, configure...)...)
}

func onLAN(spec *api.GatewaySpec) { spec.Discovery.LAN.Enabled = true }

// lanTTL is how soon a killed gateway is forgotten. It is queried again when a fifth of that is
// left, and must answer in time even on a busy machine.
const lanTTL = 15 * time.Second

func shortLived(spec *api.GatewaySpec) { spec.Discovery.LAN.TTL = api.Duration(lanTTL) }

// discover returns the output of `discover -o json`.
func (g *gateway) discover() api.DiscoveredList {
	g.t.Helper()
	var list api.DiscoveredList
	if out := g.must("discover", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil {
		g.t.Fatalf("discover prints %q", out)
	}
	return list
}

// finds waits until a gateway lists exactly these others, and returns the list.
func (g *gateway) finds(names ...string) []api.Discovered {
	g.t.Helper()
	var list api.DiscoveredList
	eventually(within(g.t, patience), g.t, fmt.Sprintf("%s finds %q", g.name, names), func() (bool, string) {
		list = g.discover()
		var got []string
		for _, d := range list.Gateways {
			got = append(got, d.Name.String())
		}
		return slices.Equal(got, names), fmt.Sprintf("%+v", list)
	})
	return list.Gateways
}

// approvesDiscovered approves a discovered gateway by the fingerprint in its own status.
func (g *gateway) approvesDiscovered(other *gateway, args ...string) {
	g.t.Helper()
	print := other.discover().Fingerprint
	out := g.must(append([]string{"peer", "approve", other.name, "--fingerprint", print}, args...)...)
	if print == "" || !strings.Contains(out, print) {
		g.t.Errorf("approve printed %q, want the fingerprint that %s shows of itself: %q", out, other.name, print)
	}
}

// near waits until a peer is connected at an address that was announced on the network.
func (g *gateway) near(other string) api.PeerStatus {
	g.t.Helper()
	return g.waitPeer(other, "connected on the local network", func(p api.PeerStatus) bool {
		return p.State == api.StateConnected && p.Path.Kind == api.PathDirect && p.Path.Source == api.SourceLAN
	})
}

// foundWithin is how soon gateways on one network find each other.
const foundWithin = 3 * time.Second

// TestGatewaysOnALANFindEachOtherSoon has three gateways find each other, with no other tests
// running.
func TestGatewaysOnALANFindEachOtherSoon(t *testing.T) {
	onTime(t, func(late lateness) {
		w := newLANWorld(t)
		a, b, c := w.gateway("a", "a"), w.gateway("b", "b"), w.gateway("c", "c")
		for _, g := range []*gateway{a, b, c} {
			g.launch()
		}
		for _, g := range []*gateway{a, b, c} {
			g.waitReady()
		}
		for g, others := range map[*gateway][]*gateway{a: {b, c}, b: {a, c}, c: {a, b}} {
			found := g.finds(others[0].name, others[1].name)
			for n, other := range others {
				up := other.status().Gateway.StartedAt
				if own := g.status().Gateway.StartedAt; own.After(up) {
					up = own
				}
				took := found[n].FirstSeenAt.Sub(up)
				t.Logf("%s found %s %v after both were up", g.name, other.name, took.Round(10*time.Millisecond))
				late(fmt.Sprintf("from when both were up until %s found %s", g.name, other.name), took, foundWithin)
			}
		}
	})
}

// TestGatewaysOnALANBecomePeers has three gateways find each other. Two approve each other and
// reach a service without any configured endpoint; one is killed and one stopped.
func TestGatewaysOnALANBecomePeers(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	a, b := w.gateway("a", "a", offerBlob), w.gateway("b", "b")
	c := w.gateway("c", "c", shortLived)
	blobServer(t, a.host)
	for _, g := range []*gateway{a, b, c} {
		g.launch()
	}
	for _, g := range []*gateway{a, b, c} {
		g.waitReady()
	}
	for g, others := range map[*gateway][]*gateway{a: {b, c}, b: {a, c}, c: {a, b}} {
		g.finds(others[0].name, others[1].name)
		for _, other := range others {
			s := other.status().Gateway
			d := g.discovered(other.name+" with two addresses", func(d api.Discovered) bool { return d.Name.String() == other.name && len(d.Addresses) == 2 })
			if d.State != api.DiscoveredNew || d.PublicKey != s.PublicKey || d.Source != api.SourceLAN || d.Domain != "eth0" || d.ExpiresAt.IsZero() {
				t.Errorf("%s has found %+v, want %s", g.name, d, s.PublicKey)
			}
			if !strings.HasPrefix(d.Addresses[0], "192.168.1.") || !strings.HasPrefix(d.Addresses[1], "[2001:db8:1::") {
				t.Errorf("%s has found %s at %q, want an address of each family", g.name, d.Name, d.Addresses)
			}
		}
	}

	// Found gateways are not trusted: both must approve.
	if peers := a.status().Peers; len(peers) != 0 {
		t.Errorf("a has peers that nobody approved: %+v", peers)
	}
	watch := a.host.Start(netlab.Command{Args: []string{a.bin, "discover", "--socket", a.socket(), "--watch", "-o", "json"}})
	a.approvesDiscovered(b, "--allow", blobService)
	if d := a.discovered("b, approved", func(d api.Discovered) bool { return d.Name.String() == "b" && d.Peer == "b" }); d.State != api.DiscoveredApproved {
		t.Errorf("approved at one side alone, b is %q, want %q", d.State, api.DiscoveredApproved)
	}
	a.refused(1, []string{"b", "peer b already"}, "peer", "approve", "b", "--allow", blobService, "--fingerprint", b.discover().Fingerprint)
	a.refused(2, []string{"nobody", "found: b, c"}, "peer", "approve", "nobody")
	a.refused(2, []string{"nobody", "found: b, c"}, "peer", "approve", "nobody", "--fingerprint", "0000")
	b.refused(2, []string{"a", "--fingerprint is missing"}, "peer", "approve", "a")
	b.refused(1, []string{"a", "fingerprint"}, "peer", "approve", "a", "--fingerprint", "0000")
	start := time.Now()
	b.approvesDiscovered(a)
	b.near("a")
	t.Logf("connected %v after the second approval", time.Since(start).Round(100*time.Millisecond))
	p := a.near("b")
	if p.PublicKey != b.status().Gateway.PublicKey {
		t.Errorf("a's peer b has the key %s", p.PublicKey)
	}
	a.discovered("b, a peer", func(d api.Discovered) bool { return d.Name.String() == "b" && d.State == api.DiscoveredPeer })
	if _, err := watch.WaitStdout(within(t, patience), func(out string) bool {
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return len(lines) > 1 && strings.Contains(lines[len(lines)-1], `"state":"peer","peer":"b"`)
	}); err != nil {
		t.Errorf("discover --watch: %v", err)
	}
	watch.Kill()
	if out := b.must("path", "a"); !strings.Contains(out, "lan") {
		t.Errorf("path shows no source lan:\n%s", out)
	}
	b.must("peer", "local", "a", blobService+"="+blobLocal)
	eventually(within(t, patience), t, "b reaches the blob service of a", func() (bool, string) {
		got, err := fetch(within(t, patience), b.host, "http://"+blobLocal+"/")
		return err == nil && strings.Contains(got, "blob of a"), fmt.Sprint(got, err)
	})
	if v := ownCheck(t, a, "lan"); v.Verdict.Verdict != api.OK {
		t.Errorf("the check lan says %+v", v)
	}

	// A killed one is forgotten when its TTL is over, a stopped one at once.
	c.stop(syscall.SIGKILL)
	killed := time.Now()
	a.finds("b")
	late(t, "a killed gateway is forgotten", time.Since(killed), lanTTL+5*time.Second)
	b.stop(syscall.SIGTERM)
	stopped := time.Now()
	a.finds()
	late(t, "a stopped gateway is forgotten", time.Since(stopped), 5*time.Second)
	a.waitPeer("b", "without an address of the local network", func(p api.PeerStatus) bool {
		return !slices.ContainsFunc(p.Candidates, func(c api.Candidate) bool { return c.Source == api.SourceLAN })
	})
	b.start() // everything it needs is in its state
	a.near("b")
}

func ownCheck(t *testing.T, g *gateway, name string) api.Check {
	t.Helper()
	r := g.postern(within(t, patience), "check", "-o", "json")
	var report api.CheckReport
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("check printed %q, %q", r.stdout, r.stderr)
	}
	i := slices.IndexFunc(report.Checks, func(c api.Check) bool { return c.Peer == "" && c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %s: %s", name, r.stdout)
	}
	return report.Checks[i]
}

// TestPeersByTicketAreFoundOnTheLAN: peers that joined by ticket use announced addresses as soon
// as they are heard.
func TestPeersByTicketAreFoundOnTheLAN(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	a, b := w.gateway("a", "a").start(), w.gateway("b", "b").start()
	enrol(a, b, nil, nil)
	a.near("b")
	b.near("a")
}

// TestOneNameOnALAN starts two gateways with the same name.
func TestOneNameOnALAN(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	first, second, third := w.gateway("a", "edge"), w.gateway("b", "edge"), w.gateway("c", "cloud")
	for _, g := range []*gateway{first, second, third} {
		g.launch()
	}
	for _, g := range []*gateway{first, second, third} {
		g.waitReady()
	}
	var found []api.Discovered
	eventually(within(t, patience), t, "each is found as what it says that it is", func() (bool, string) { // while they settle it, a name may go from one to the other
		found = third.finds("edge", "edge (2)")
		byKey := map[string]string{}
		for _, g := range []*gateway{first, second} {
			byKey[g.status().Gateway.PublicKey] = g.discover().AnnouncedAs
		}
		other := slices.ContainsFunc(found, func(d api.Discovered) bool { return byKey[d.PublicKey] != d.Name.String() })
		return !other, fmt.Sprintf("found %+v, announced %v", found, byKey)
	})
	n := slices.IndexFunc(found, func(d api.Discovered) bool { return d.Name.String() == "edge (2)" })
	if out := third.must("peer", "approve", "edge (2)", "--fingerprint", found[n].Fingerprint); !strings.HasPrefix(out, "approved edge-2, ") {
		t.Errorf("approve printed %q, want a peer edge-2", out)
	}
	numbered := first
	if first.discover().AnnouncedAs == "edge" {
		numbered = second
	}
	numbered.approvesDiscovered(third)
	third.near("edge-2")
	numbered.waitLog("name is taken on the local network", "edge (2)")
}

// TestGatewaysOfAGroupPeerByThemselves: gateways that know a secret, or are listed by their keys,
// become peers. Others do not: neither one without the secret nor one that repeats a member's
// announcement.
func TestGatewaysOfAGroupPeerByThemselves(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	secret := filepath.Join(tempDir(t), "lan.key")
	if err := os.WriteFile(secret, []byte("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	member := func(spec *api.GatewaySpec) {
		spec.Discovery.LAN.SecretFile, spec.Discovery.LAN.Allow = secret, []string{"auth"}
	}
	a, b, stranger := w.gateway("a", "a", member).start(), w.gateway("b", "b", member).start(), w.gateway("c", "stranger").start()
	if p := a.near("b"); !slices.Equal(p.Allow, []string{"auth"}) {
		t.Errorf("b may reach %q at a, want auth", p.Allow)
	}
	b.near("a")
	a.finds("b", "stranger")

	// b's announcement, repeated under another name, proves nothing.
	bus := w.host("copier").StartAvahi()
	proof := announcement(t, bus, "b")
	bus.Publish("copy", "_postern._udp", 51820, proof...)
	d := a.discovered("the copy", func(d api.Discovered) bool { return d.Name.String() == "copy" })
	if d.Member {
		t.Errorf("a copied announcement counts as a member's: %+v", d)
	}
	if !slices.ContainsFunc(proof, func(s string) bool { return strings.HasPrefix(s, "pr=") }) {
		t.Errorf("b announces %q, want a proof among it", proof)
	}
	if peers := a.status().Peers; len(peers) != 1 {
		t.Errorf("a has the peers %+v, want b alone", peers)
	}
	said := a.proc.Stderr() + b.proc.Stderr() + stranger.proc.Stderr()
	for _, command := range [][]string{{"discover", "-o", "json"}, {"status", "-o", "json"}, {"config", "view"}, {"check", "-o", "json"}} {
		r := a.postern(within(t, patience), command...)
		said += r.stdout + r.stderr
	}
	if strings.Contains(said, "hSDwCYkwp1R0i33ctD73Wg2") {
		t.Error("the secret is in a log, or in what a command prints")
	}

	// Listed by its key on both sides, the stranger becomes a peer.
	list := func(g, other *gateway) {
		g.doc.Spec.Discovery.LAN.AutoPeer = []string{other.name + "=" + other.status().Gateway.PublicKey}
		g.reload()
	}
	list(a, stranger)
	list(stranger, a)
	a.near("stranger")
	stranger.near("a")

	// A peer removed by command does not come back.
	a.must("peer", "remove", "stranger", "--force")
	a.finds("b", "copy", "stranger")
	eventually(within(t, patience), t, "stranger sees that it is gone", func() (bool, string) {
		p, _ := stranger.peer("a")
		return p.State != api.StateConnected, string(p.State)
	})
	if _, back := a.peer("stranger"); back {
		t.Error("a peer that was removed has come back by itself")
	}
	a.stop(syscall.SIGTERM)
	a.start()
	a.finds("b", "copy", "stranger")
	a.near("b")
	if _, back := a.peer("stranger"); back {
		t.Error("a peer that was removed has come back after a restart")
	}
}

// announcement returns what avahi sees in a gateway's TXT record.
func announcement(t *testing.T, bus *netlab.Avahi, name string) []string {
	t.Helper()
	var out []string
	eventually(within(t, patience), t, "avahi sees "+name, func() (bool, string) {
		lines, err := bus.Browse(within(t, patience), "_postern._udp")
		for _, l := range lines {
			if f := strings.SplitN(l, ";", 10); len(f) == 10 && f[3] == name {
				out = nil
				for s := range strings.SplitSeq(strings.Trim(f[9], `"`), `" "`) {
					out = append(out, s)
				}
				return true, ""
			}
		}
		return false, fmt.Sprint(lines, err)
	})
	return out
}

// TestAvahiAndGatewaysSeeEachOther runs avahi on a gateway's host, where both share the port, and
// on a host of its own.
func TestAvahiAndGatewaysSeeEachOther(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	a, b := w.gateway("a", "a"), w.gateway("b", "b")
	beside := a.host.StartAvahi() // started first, as on most hosts
	a.start()
	b.start()
	apart := w.host("c").StartAvahi()
	for name, bus := range map[string]*netlab.Avahi{"beside a gateway": beside, "on a host of its own": apart} {
		for n, g := range []*gateway{a, b} {
			s := g.status().Gateway
			addresses := []string{fmt.Sprintf("192.168.1.%d", n+1), fmt.Sprintf("2001:db8:1::%d", n+1)}
			eventually(within(t, patience), t, "avahi "+name+" sees "+g.name, func() (bool, string) {
				lines, err := bus.Browse(within(t, patience), "_postern._udp")
				ways := map[string]bool{} // it queries by IPv4 and by IPv6, each for one address
				for _, l := range lines {
					f := strings.SplitN(l, ";", 10)
					if len(f) != 10 || f[3] != g.name {
						continue
					}
					if f[8] != "51820" || !slices.Contains(addresses, f[7]) || !containsAll(f[9], `"v=1"`, `"pk=`+s.PublicKey+`"`, `"ov=`+s.Address+`"`, `"caps=`) || !strings.HasPrefix(f[6], "postern-") {
						t.Fatalf("avahi %s resolves %q", name, l)
					}
					ways[f[2]] = true
				}
				return ways["IPv4"] && ways["IPv6"], fmt.Sprint(lines, err)
			})
		}
	}
	// The other direction: services that avahi publishes are seen, on the same host and on
	// another.
	key := "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	published := beside.Publish("made by hand", "_postern._udp", 4242, "v=1", "pk="+key)
	odd := apart.Publish("odd", "_postern._udp", 4243, "v=1")
	for g, address := range map[*gateway]string{b: "192.168.1.1:4242", a: ""} {
		d := g.discovered("what avahi publishes", func(d api.Discovered) bool {
			return d.Name.String() == "made by hand" && (address == "" || slices.Contains(d.Addresses, address))
		})
		if d.PublicKey != key || d.State != api.DiscoveredNew {
			t.Errorf("%s has found %+v", g.name, d)
		}
		d = g.discovered("what is wrong", func(d api.Discovered) bool { return d.Name.String() == "odd" })
		if d.State != api.DiscoveredInvalid || !strings.Contains(d.Problem.String(), "no public key") {
			t.Errorf("%s has found %+v", g.name, d)
		}
	}
	b.verdict("PST0435", "odd", "no public key")
	published.Kill()
	odd.Kill()
	a.finds("b")
	b.finds("a")

	// Name conflicts with avahi are resolved as well: the first owner keeps the name.
	late := apart.Publish("a", "_postern._udp", 51820, "v=1", "pk="+key)
	b.finds("a", "a #2")
	late.Kill()
	first := apart.Publish("edge", "_postern._udp", 51820, "v=1", "pk="+key)
	edge := w.gateway("d", "edge").start()
	b.finds("a", "edge", "edge (2)")
	if as := edge.discover().AnnouncedAs; as != "edge (2)" {
		t.Errorf("beside avahi's edge, the gateway is announced as %q", as)
	}
	first.Kill()
	edge.stop(syscall.SIGTERM)
	b.finds("a")

	// Another key announces the name of a peer.
	b.must("peer", "add", "cloud", "--public-key", key)
	apart.Publish("cloud", "_postern._udp", 51820, "v=1", "pk="+a.status().Gateway.PublicKey)
	d := b.discovered("another cloud", func(d api.Discovered) bool { return d.Name.String() == "cloud" })
	if d.State != api.DiscoveredConflict || !strings.Contains(d.Problem.String(), "that one is kept to") {
		t.Errorf("b has found %+v, want a conflict", d)
	}
	b.verdict("PST0434", "cloud", d.Fingerprint)
	b.refused(1, []string{"cloud", "another key"}, "peer", "approve", "cloud", "--allow", "auth", "--fingerprint", d.Fingerprint)
	if p, _ := b.peer("cloud"); len(p.Candidates) != 0 {
		t.Errorf("the peer cloud is dialled at %+v", p.Candidates)
	}
}

// TestJunkOnALAN sends gateways 10,000 invalid or nearly valid messages.
func TestJunkOnALAN(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	a, b := w.gateway("a", "a").start(), w.gateway("b", "b").start()
	a.finds("b")
	a.approvesDiscovered(b)
	b.approvesDiscovered(a)
	a.near("b")
	before := rssAnon(t, a.proc.PID())
	evil := w.host("evil")
	conn, err := evil.ListenUDP(netip.MustParseAddrPort("192.168.1.3:5353"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := a.host.MeterSent("udp sport 5353")
	group := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("224.0.0.251:5353"))
	random := rand.New(rand.NewPCG(7, 7))
	seed := []byte("\x00\x00\x84\x00\x00\x00\x00\x01\x00\x00\x00\x00\x08_postern\x04_udp\x05local\x00\x00\x0c\x00\x01\x00\x00\x11\x94\x00\x07\x04junk\xc0\x0c")
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for n := range 10_000 {
		p := slices.Clone(seed)
		if n%2 == 0 {
			p = make([]byte, random.IntN(1400))
			for i := range p {
				p[i] = byte(random.Uint32())
			}
		} else { // well-formed, each with another name
			copy(p[len(p)-6:], fmt.Sprintf("%04x", n))
		}
		if _, err := conn.WriteTo(p, group); err != nil {
			t.Fatal(err)
		}
		if n%20 == 0 {
			<-pause.C
		}
	}
	a.discovered("b still", func(d api.Discovered) bool { return d.Name.String() == "b" && d.State == api.DiscoveredPeer })
	b.discovered("a still", func(d api.Discovered) bool { return d.Name.String() == "a" && d.State == api.DiscoveredPeer })
	c := w.gateway("c", "c").start()
	a.discovered("a newcomer", func(d api.Discovered) bool { return d.Name.String() == "c" })
	c.discovered("a", func(d api.Discovered) bool { return d.Name.String() == "a" })
	_, out, err := sent.Read(within(t, patience))
	grown := rssAnon(t, a.proc.PID()) - before
	t.Logf("a sent %d messages and grew by %d KB", out.Packets, grown>>10)
	if err != nil || out.Packets > 1000 || grown > 16<<20 {
		t.Errorf("a sent %d messages (%v) and grew by %d bytes", out.Packets, err, grown)
	}
}

// TestNothingIsSentToALANUnlessConfigured counts what leaves for multicast DNS.
func TestNothingIsSentToALANUnlessConfigured(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	a := newGateway(t, w.host("a"), "a")
	multicast := []string{"udp dport 5353", "ip daddr 224.0.0.0/4 udp dport != 5353", "ip6 daddr ff00::/8 udp dport != 5353"}
	meter := a.host.MeterSent(multicast...)
	a.start()
	b := w.gateway("b", "b").start()
	enrol(a, b, nil, nil)
	if d := a.discover(); len(d.Looking) != 0 || len(d.Gateways) != 0 {
		t.Errorf("it looks for others: %+v", d)
	}
	if out := a.must("discover"); !strings.Contains(out, "spec.discovery.lan: {enabled: true}") {
		t.Errorf("discover does not say how to switch it on: %q", out)
	}
	b.finds()
	if _, out, err := meter.Read(within(t, patience)); err != nil || out.Packets != 0 {
		t.Errorf("%d datagrams were sent to groups (%v), want none", out.Packets, err)
	}
	for _, table := range []string{"udp", "udp6"} {
		for _, s := range sockets(t, a.proc.PID(), table, "07") {
			if s.Port() == 5353 {
				t.Errorf("a socket listens at %v", s)
			}
		}
	}
	// A reload enables it, and disables it again with a goodbye.
	onLAN(&a.doc.Spec)
	a.reload()
	b.finds("a")
	a.finds("b")
	a.doc.Spec.Discovery.LAN.Enabled = false
	a.reload()
	b.finds()
	a.finds()
}

// TestAnInterfaceThatIsNotThereIsNamed has a gateway configured with a missing interface.
func TestAnInterfaceThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	w := newLANWorld(t)
	a := w.gateway("a", "a", func(spec *api.GatewaySpec) { spec.Discovery.LAN.Interfaces = []string{"wlan0", "lo"} }).start()
	a.verdict("PST0430", "wlan0 (there is no such interface)", "lo (loopback)")
	d := a.discover()
	if len(d.Problems) != 1 || d.Problems[0].Code != "PST0430" || !strings.Contains(d.Problems[0].Fix, "spec.discovery.lan.interfaces") {
		t.Errorf("discover says %+v", d.Problems)
	}
	// On the right interface nobody is heard, which is reported after a minute.
	a.doc.Spec.Discovery.LAN.Interfaces = []string{"eth0"}
	a.reload()
	a.verdict("PST0432", "eth0")
}
