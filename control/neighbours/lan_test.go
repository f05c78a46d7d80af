package neighbours

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestNamesOfInstancesBecomeNamesOfPeers(t *testing.T) {
	for instance, want := range map[string]string{
		"edge": "edge", "edge (2)": "edge-2", "Edge": "edge", "my cluster!": "my-cluster", "--a--": "a",
		"": "", "…": "", "Küche": "k-che", strings.Repeat("a", 63): strings.Repeat("a", 40), strings.Repeat("a", 39) + " b": strings.Repeat("a", 39),
	} {
		if got := peerName(instance); got != want || got != "" && api.CheckName(got) != nil {
			t.Errorf("%q: got %q, want %q", instance, got, want)
		}
	}
}

// Each reason why nobody is seen has a code, and only when it is one.
func TestWhyNobodyIsSeenOnTheLAN(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	long := now.Add(-10 * time.Minute)
	up := lan.LinkStatus{Interface: "eth0", IPv4: true}
	heard, down := up, lan.LinkStatus{Interface: "eth1", Unfit: "down"}
	heard.Heard = long
	broken := lan.LinkStatus{Interface: "eth0", Err: "IPv4: bind to 224.0.0.251:5353: address already in use"}
	half := up
	half.Err = "IPv6: join ff02::fb: no such device"
	pod := fstest.MapFS{
		"sys/class/net/eth0/ifindex": {Data: []byte("2\n")}, "sys/class/net/eth0/iflink": {Data: []byte("17\n")},
	}
	node := fstest.MapFS{
		"sys/class/net/eth0/ifindex": {Data: []byte("2\n")}, "sys/class/net/eth0/iflink": {Data: []byte("2\n")},
	}
	for _, c := range []struct {
		name   string
		status lan.Status
		found  int
		chosen []string
		root   fstest.MapFS
		want   string
		words  string
	}{
		{"not started", lan.Status{}, 0, nil, nil, "", ""},
		{"has yet to look", lan.Status{Since: long}, 0, nil, nil, "", ""},
		{"all is well", lan.Status{Since: long, Links: []lan.LinkStatus{heard, down}}, 1, nil, nil, "", ""},
		{"one family of two", lan.Status{Since: long, Links: []lan.LinkStatus{half}}, 1, nil, nil, "", ""},
		{"just started", lan.Status{Since: now.Add(-time.Second), Links: []lan.LinkStatus{up}}, 0, nil, nil, "", ""},
		{"nothing heard", lan.Status{Since: long, Links: []lan.LinkStatus{up, down}}, 0, nil, nil, "PST0432", "eth0 for 10m0s"},
		{"nothing heard on a node", lan.Status{Since: long, Links: []lan.LinkStatus{up}}, 0, nil, node, "PST0432", "eth0"},
		{"nothing heard in a pod", lan.Status{Since: long, Links: []lan.LinkStatus{up}}, 0, nil, pod, "PST0433", "pod on the cluster's network (eth0)"},
		{"no interface", lan.Status{Since: long, Links: []lan.LinkStatus{down}}, 0, nil, nil, "PST0430", "eth1 (down)"},
		{"the chosen one is down", lan.Status{Since: long, Links: []lan.LinkStatus{heard, down}}, 1, []string{"eth0", "eth1"}, nil, "PST0430", "eth1 (down)"},
		{"the port is taken", lan.Status{Since: long, Links: []lan.LinkStatus{broken}}, 0, nil, nil, "PST0431", "on eth0: IPv4: bind to 224.0.0.251:5353: address already in use"},
		{"interfaces are not known", lan.Status{Since: long, Err: "list network interfaces: no"}, 0, nil, nil, "PST0431", "list network interfaces: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
			cfg := &config.Resolved{}
			cfg.Discovery.LAN.Interfaces = c.chosen
			o := &Options{Peers: &roster.Registry{View: roster.NewView(&roster.Roster{}, cfg)}}
			if c.root != nil {
				o.Root = c.root
			}
			got := newLANSearch(o).linkProblems(c.status, c.found, now)
			if c.want == "" {
				if len(got) != 0 {
					t.Errorf("got %+v, want nothing", got)
				}
				return
			}
			if len(got) != 1 || string(got[0].Code) != c.want {
				t.Fatalf("got %+v, want %s", got, c.want)
			}
			if cause, fix := catalogue.Render(got[0].Code, got[0].Params); !strings.Contains(cause, c.words) || len(fix) == 0 {
				t.Errorf("got %q, want %q in it", cause, c.words)
			}
		})
	}
}

// Where peers were found is told once, whoever else comes and goes.
func TestOnlyPeersThatMoveAreLookedAt(t *testing.T) {
	key := func(n byte) peer.PublicKey { return peer.PrivateKeyFromBytes([32]byte{1, n}).Public() }
	r := roster.Of(&roster.Member{Name: "cloud", Keys: roster.Keys{Key: key(1)}})
	at := func(name string, k peer.PublicKey, address, problem string) lan.Instance {
		return lan.Instance{Name: foreign.Of(name), PublicKey: k, Addresses: []netip.AddrPort{netip.MustParseAddrPort(address)}, Err: foreign.Of(problem)}
	}
	here := at("cloud", key(1), "192.168.1.2:51820", "")
	was := peersAt(r, []lan.Instance{here})
	for _, c := range []struct {
		what  string
		found []lan.Instance
		same  bool
	}{
		{"a stranger", []lan.Instance{here, at("edge", key(2), "192.168.1.3:51820", "")}, true},
		{"its name with another key", []lan.Instance{here, at("cloud", key(2), "192.168.1.3:51820", "")}, true},
		{"another address", []lan.Instance{at("cloud", key(1), "192.168.1.4:51820", "")}, false},
		{"broken records", []lan.Instance{at("cloud", key(1), "192.168.1.2:51820", "no port")}, false},
		{"nobody", nil, false},
	} {
		if same := peersAt(r, c.found) == was; same != c.same {
			t.Errorf("%s: the same: %v, want %v", c.what, same, c.same)
		}
	}
}

// A key is public, so a name that comes with it says nothing unless it is proven.
func TestAnAnnouncedNameCountsOnlyWithAProof(t *testing.T) {
	key := func(n byte) peer.PublicKey { return peer.PrivateKeyFromBytes([32]byte{1, n}).Public() }
	plain, named, member, stranger, both := key(1), key(2), key(3), key(4), key(5)
	l := config.LAN{AutoPeer: []config.AutoPeer{{Key: plain}, {Name: "cloud", Key: named}, {Key: both}}}
	var got []string
	for _, w := range wishes(l, []lan.Instance{
		{Name: foreign.Of("admin"), PublicKey: plain}, {Name: foreign.Of("admin (2)"), PublicKey: plain}, {Name: foreign.Of("admin"), PublicKey: named},
		{Name: foreign.Of("Edge (2)"), PublicKey: member, Member: true}, {Name: foreign.Of("admin"), PublicKey: member}, {Name: foreign.Of("x"), PublicKey: stranger},
		{Name: foreign.Of("broken"), PublicKey: plain, Err: foreign.Of("no port")}, {Name: foreign.Of("admin"), PublicKey: both}, {Name: foreign.Of("both"), PublicKey: both, Member: true},
	}) {
		if got = append(got, w.name); w.chosen != (w.name == "cloud") || api.CheckName(w.name) != nil {
			t.Errorf("got %+v", w)
		}
	}
	if want := []string{"edge-2", "both", "gateway-" + peer.Fingerprint(plain), "cloud"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whoever announces a peer's key at many addresses must not keep it from being tried where
// it is.
func TestStrangersDoNotCrowdOutAPeersAddresses(t *testing.T) {
	key := peer.PrivateKeyFromBytes([32]byte{1}).Public()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	instance := func(name string, seen time.Duration, member bool, hosts ...byte) lan.Instance {
		i := lan.Instance{Name: foreign.Of(name), PublicKey: key, Member: member, FirstSeen: now.Add(seen)}
		for _, h := range hosts {
			i.Addresses = append(i.Addresses, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, h}), 51820))
		}
		return i
	}
	crowd := instance("!x", time.Minute, false, 1, 2, 3, 4, 5, 6)
	for _, c := range []struct {
		what   string
		real   lan.Instance
		proven byte
		want   []byte
	}{
		{"a stranger who came later", instance("cloud", 0, false, 9), 0, []byte{9, 1, 2, 3, 4, 5, 6}},
		{"a stranger who came first", instance("cloud", time.Hour, false, 9), 0, []byte{1, 2, 9, 3, 4, 5, 6}},
		{"a proven member", instance("cloud", time.Hour, true, 9, 10, 11), 0, []byte{9, 10, 1, 2, 11, 3, 4, 5, 6}},
		{"heard there before", instance("cloud", time.Hour, false, 8, 9, 10), 10, []byte{10, 8, 1, 2, 9, 3, 4, 5, 6}},
		{"one address of both", instance("cloud", time.Hour, false, 1), 0, []byte{1, 2, 3, 4, 5, 6}},
	} {
		proven := instance("", 0, false, c.proven).Addresses
		other := instance("edge", 0, true, 77)
		other.PublicKey = peer.PrivateKeyFromBytes([32]byte{1, 2}).Public()
		var got []byte
		for _, a := range inTurn([]lan.Instance{crowd, c.real, other}, []peer.PublicKey{key}, proven) {
			got = append(got, a.Addr.Addr().As4()[3])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, got, c.want)
		}
	}
}

// What cannot become a peer is tried again and again, and told of once.
func TestARefusalIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	s := newLANSearch(&Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	w := wish{name: "cloud", claim: claim{name: foreign.Of("cloud"), key: peer.PublicKey{1}}}
	for n, c := range []struct {
		problem string
		lines   int
	}{{"the disk is full", 1}, {"the disk is full", 1}, {"the name is taken", 2}, {"the disk is full", 3}} {
		s.tellRefused(t.Context(), w, errors.New(c.problem))
		s.refused = map[peer.PublicKey][]string{w.claim.key: {c.problem}}
		if got := strings.Count(out.String(), "level=WARN"); got != c.lines {
			t.Errorf("after refusal %d there are %d lines, want %d:\n%s", n, got, c.lines, out.String())
		}
	}
}
