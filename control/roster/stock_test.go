package roster

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A plain WireGuard peer gets no connection to auth, from any of its addresses, and auth knows
// whose they are. With a /8 it could otherwise hold all connections.
func TestAStockPeerReachesNoAuth(t *testing.T) {
	key := peer.PublicKey{5}
	r, err := Make(peer.PublicKey{1}, []config.Peer{
		{Name: "router", PublicKey: key, Stock: true, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		{Name: "edge", PublicKey: peer.PublicKey{6}},
	}, state.Peers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.0.0.1", "10.9.8.7"} {
		p, known := r.Resolve(netip.MustParseAddr(a))
		if !known || p.Name != "router" || !p.Mute {
			t.Errorf("%s is %+v (%v), want the router's, which has nothing to say to auth", a, p, known)
		}
		if got := r.Owner(netip.MustParseAddr(a)); got != peer.OverlayAddr(key) {
			t.Errorf("%s is %v's, want the router's", a, got)
		}
		c, known := r.Caller(netip.MustParseAddr(a))
		if !known || c.Kind != auth.KindStock || c.PublicKey != key || len(c.Grants) > 0 {
			t.Errorf("%s calls as %+v (%v)", a, c, known)
		}
	}
	if p, known := r.Resolve(peer.OverlayAddr(peer.PublicKey{6})); !known || p.Mute {
		t.Errorf("a gateway is %+v (%v)", p, known)
	}
	if c, known := r.Caller(netip.MustParseAddr("192.0.2.1")); known {
		t.Errorf("a stranger calls as %+v", c)
	}
	for _, a := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), peer.OverlayAddr(peer.PublicKey{6})} {
		if got := r.Owner(a); got != a {
			t.Errorf("%v is %v's", a, got)
		}
	}
}

// A peer that waits for approval is not in the tunnel, so the tunnel would not notice that a stock
// peer has its address. Make must refuse that.
func TestNobodyWaitsAtAStockPeersAddress(t *testing.T) {
	waiting := peer.PublicKey{7}
	var joined state.Peers
	if err := joined.Put(state.Peer{Name: "late", PublicKey: waiting, Pending: true}); err != nil {
		t.Fatal(err)
	}
	for site, want := range map[netip.Addr]error{peer.OverlayAddr(waiting): errConflict, peer.OverlayAddr(peer.PublicKey{8}): nil} {
		router := config.Peer{Name: "router", PublicKey: peer.PublicKey{5}, Stock: true, AllowedIPs: []netip.Prefix{netip.PrefixFrom(site, peer.SiteBits).Masked()}}
		if _, err := Make(peer.PublicKey{1}, []config.Peer{router}, joined, nil); !errors.Is(err, want) {
			t.Errorf("with a stock peer at %s: %v, want %v", site, err, want)
		}
	}
}

// Every address is found as if all prefixes were looked at, however they nest.
func TestAddressesOfStockPeersAreFound(t *testing.T) {
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, p := range list {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	r, err := Make(peer.PublicKey{1}, []config.Peer{
		{Name: "a", PublicKey: peer.PublicKey{5}, Stock: true, AllowedIPs: prefixes("10.2.0.0/16", "10.0.0.0/8", "10.1.0.7/16", "fd01::/48", "fd01::5/128")},
		{Name: "b", PublicKey: peer.PublicKey{6}, Stock: true, AllowedIPs: prefixes("11.0.0.0/8", "9.255.255.255/32", "fd02::/64")},
		{Name: "c", PublicKey: peer.PublicKey{7}},
	}, state.Peers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"0.0.0.0", "9.255.255.254", "9.255.255.255", "10.0.0.0", "10.1.2.3", "10.3.0.0", "10.255.255.255", "11.0.0.0", "12.0.0.0",
		"255.255.255.255", "::", "fd01::", "fd01::5", "fd01::6", "fd01:0:1::", "fd02::1", "fd02:0:0:1::", "ffff::", "::ffff:10.0.0.1",
	} {
		a, want := netip.MustParseAddr(text), ""
		for _, m := range r.Members() {
			if m.Stock && m.has(a) {
				want = m.Name
			}
		}
		got := ""
		if m := r.Find(a); m != nil {
			got = m.Name
		}
		if got != want {
			t.Errorf("%s is of %q, want %q", a, got, want)
		}
	}
}

// An address is lost when it goes to nobody or to another peer, not when its peer gets its next key.
func TestAddressesAreLost(t *testing.T) {
	site := netip.MustParseAddr("10.0.0.1")
	router := func(name string, key byte, ips string) *Member {
		return fileMember(config.Peer{Name: name, PublicKey: peer.PublicKey{key}, Stock: true, AllowedIPs: []netip.Prefix{netip.MustParsePrefix(ips)}})
	}
	edge := fileMember(config.Peer{Name: "edge", PublicKey: peer.PublicKey{7}})
	edge.NextKey = peer.PublicKey{8}
	moved := fileMember(config.Peer{Name: "edge", PublicKey: peer.PublicKey{8}})
	old := Of(router("a", 5, "10.0.0.0/8"), edge)
	for name, c := range map[string]struct {
		next *Roster
		at   netip.Addr
		want bool
	}{
		"same":                {Of(router("a", 5, "10.0.0.0/8")), site, false},
		"renamed":             {Of(router("b", 5, "10.0.0.0/8")), site, false},
		"removed":             {Of(), site, true},
		"narrowed":            {Of(router("a", 5, "10.1.0.0/16")), site, true},
		"another's":           {Of(router("b", 6, "10.0.0.0/8")), site, true},
		"the key before":      {Of(moved), edge.Overlay, true},
		"the announced key":   {Of(moved), moved.Overlay, false},
		"nobody's before":     {Of(), netip.MustParseAddr("11.0.0.1"), false},
		"a new peer's before": {Of(router("b", 6, "11.0.0.0/8")), netip.MustParseAddr("11.0.0.1"), false},
	} {
		if got := old.loses(c.at, c.next); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
