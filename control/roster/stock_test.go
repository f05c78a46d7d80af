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
