package tunnel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

func prefixes(s ...string) (ps []netip.Prefix) {
	for _, p := range s {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}

// siteOf is the network of local addresses that contains a key's overlay address.
func siteOf(k peer.PublicKey) string {
	return netip.PrefixFrom(peer.OverlayAddr(k), peer.SiteBits).Masked().String()
}

func TestAStockPeerMayHaveALocalNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startNode(t, newMemory(), newKey(t), cloudAddr)
		stranger := newKey(t).Public() // a key that no peer has yet
		router := peer.Config{Name: "router", PublicKey: newKey(t).Public(), Stock: true, AllowedIPs: prefixes(siteOf(stranger))}
		e.set(router, peer.Config{Name: "cloud", PublicKey: newKey(t).Public()})
		if err := e.SetPeers([]peer.Config{router, {Name: "edge", PublicKey: stranger}}); !errors.Is(err, ErrPeerSet) || !strings.Contains(err.Error(), `the overlay address of peer "edge"`) {
			t.Errorf("a peer whose address is in there: %v", err)
		}
	})
}

func TestContradictoryPeersAreRefused(t *testing.T) {
	own, a, b, c := newKey(t), newKey(t).Public(), newKey(t).Public(), newKey(t).Public()
	stock := func(name string, k peer.PublicKey, allowed ...string) peer.Config {
		return peer.Config{Name: name, PublicKey: k, Stock: true, AllowedIPs: prefixes(allowed...)}
	}
	endpoint := func(s string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(s)} }
	for name, test := range map[string]struct {
		peers []peer.Config
		says  []string // what the error must contain
	}{
		"two of one name": {[]peer.Config{{Name: "x", PublicKey: a}, {Name: "x", PublicKey: b}}, []string{`"x"`, a.String(), b.String()}},
		"two of one key":  {[]peer.Config{{Name: "x", PublicKey: a}, {Name: "y", PublicKey: a}}, []string{`"x"`, `"y"`, a.String()}},
		"no name":         {[]peer.Config{{PublicKey: a}}, []string{a.String(), "no name"}},
		"no key":          {[]peer.Config{{Name: "x"}}, []string{`"x"`, "no public key"}},
		"low-order key":   {[]peer.Config{{Name: "x", PublicKey: peer.PublicKey{1}}}, []string{`"x"`}},
		"our own key":     {[]peer.Config{{Name: "x", PublicKey: own.Public()}}, []string{`"x"`, "own public key"}},
		"stock peer in the overlay": {
			[]peer.Config{{Name: "cloud", PublicKey: b}, stock("router", a, "10.0.0.0/8", peer.OverlayAddr(b).String()+"/128")},
			[]string{`"router"`, `holds the overlay address of peer "cloud"`, peer.OverlayAddr(b).String()},
		},
		"stock peer in the network of a peer": {
			[]peer.Config{stock("router", a, siteOf(b)), {Name: "cloud", PublicKey: b}}, []string{`"router"`, `"cloud"`, siteOf(b)},
		},
		"stock peer in our network":          {[]peer.Config{stock("router", a, siteOf(own.Public()))}, []string{`"router"`, "holds the overlay address of this gateway", siteOf(own.Public())}},
		"stock peer for more than a network": {[]peer.Config{stock("router", a, "fd12:3456::/47")}, []string{`"router"`, "fd12:3456::/47", "too much of the overlay fd00::/8", "at most a /48"}},
		"stock peer for all of IPv6":         {[]peer.Config{stock("router", a, "::/0")}, []string{`"router"`, "::/0", "too much of the overlay fd00::/8"}},
		"overlapping stock peers": {
			[]peer.Config{stock("one", a, "192.0.2.0/24", "10.0.0.0/8"), stock("two", b, "172.16.0.0/12", "10.1.2.3/32")},
			[]string{`"one"`, `"two"`, "10.0.0.0/8", "10.1.2.3/32"},
		},
		"equal prefixes of stock peers": {[]peer.Config{stock("one", a, "10.0.0.1/8"), stock("two", b, "10.0.0.0/8")}, []string{`"one"`, `"two"`}},
		"overlap across a third":        {[]peer.Config{stock("one", a, "0.0.0.0/0"), stock("three", c, "0.0.0.0/0"), stock("two", b, "10.0.0.0/8")}, []string{`"one"`, `"three"`}},
		"mapped prefix":                 {[]peer.Config{stock("x", a, "::ffff:10.0.0.0/104")}, []string{`"x"`}},
		"invalid prefix":                {[]peer.Config{{Name: "x", PublicKey: a, Stock: true, AllowedIPs: []netip.Prefix{{}}}}, []string{`"x"`}},
		"keepalive of half a second":    {[]peer.Config{{Name: "x", PublicKey: a, Keepalive: time.Second / 2}}, []string{`"x"`, "500ms"}},
		"keepalive too long":            {[]peer.Config{{Name: "x", PublicKey: a, Keepalive: 65536 * time.Second}}, []string{`"x"`}},
		"endpoint without port":         {[]peer.Config{{Name: "x", PublicKey: a, Endpoints: endpoint("192.0.2.1:0")}}, []string{`"x"`, "192.0.2.1:0"}},
		"endpoint unspecified":          {[]peer.Config{{Name: "x", PublicKey: a, Endpoints: endpoint("0.0.0.0:5")}}, []string{`"x"`, "0.0.0.0:5"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := startNode(t, newMemory(), own, cloudAddr)
				before := peer.Config{Name: "before", PublicKey: newKey(t).Public()}
				e.set(before)
				err := e.SetPeers(append([]peer.Config{{Name: "fine", PublicKey: newKey(t).Public()}}, test.peers...))
				if !errors.Is(err, ErrPeerSet) {
					t.Fatalf("got %v, want ErrPeerSet", err)
				}
				for _, s := range test.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("the message lacks %q: %v", s, err)
					}
				}
				state, err := e.state()
				if err != nil {
					t.Fatal(err)
				}
				if len(state.Peers) != 1 || state.Peers[0].PublicKey != before.PublicKey || len(e.Snapshot().Peers) != 1 {
					t.Errorf("the refused set was applied in part: %+v", state.Peers)
				}
			})
		})
	}
}

func TestAddressesMayNestWithinAPeerAndMoveBetweenPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startNode(t, newMemory(), newKey(t), cloudAddr)
		a, b := newKey(t).Public(), newKey(t).Public()
		stock := func(name string, k peer.PublicKey, allowed ...string) peer.Config {
			return peer.Config{Name: name, PublicKey: k, Stock: true, AllowedIPs: prefixes(allowed...)}
		}
		e.set(stock("a", a, "10.0.0.0/8", "10.1.0.0/16"), stock("b", b, "192.0.2.0/24"))
		e.set(stock("a", a, "192.0.2.0/24"), stock("b", b, "10.0.0.0/8"))
		state, err := e.state()
		if err != nil {
			t.Fatal(err)
		}
		want := map[peer.PublicKey]string{a: "192.0.2.0/24", b: "10.0.0.0/8"}
		for _, p := range state.Peers {
			if len(p.AllowedIPs) != 1 || p.AllowedIPs[0].String() != want[p.PublicKey] {
				t.Errorf("%s has %v, want %v", p.PublicKey, p.AllowedIPs, want[p.PublicKey])
			}
		}
		if len(state.Peers) != 2 {
			t.Errorf("got %d peers, want 2", len(state.Peers))
		}
	})
}
