package peer

import (
	"net/netip"
	"testing"
)

func TestPathText(t *testing.T) {
	addr := netip.MustParseAddrPort("203.0.113.8:51820")
	for want, p := range map[string]Path{
		"203.0.113.8:51820":             {Remote: addr},
		"203.0.113.8:51820 via relay-3": {Via: "relay-3", Remote: addr},
		"[2001:db8::1]:7":               Direct(netip.MustParseAddrPort("[2001:db8::1]:7")),
		"none":                          {Via: "relay-3"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%#v: got %q, want %q", p, got, want)
		}
	}
}

func TestPathTextIsRead(t *testing.T) {
	for _, want := range []string{"203.0.113.8:51820", "203.0.113.8:51820 via relay-3", "[fe80::1%eth0]:7 via x"} {
		if got, err := ParsePath(want); err != nil || got.String() != want {
			t.Errorf("%q: got %v, %v", want, got, err)
		}
	}
	for _, s := range []string{"", "none", "203.0.113.8", "203.0.113.8:1 via ", "203.0.113.8:1 via", "example.org:1"} {
		if got, err := ParsePath(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		}
	}
}

func TestPathIsValidWithAnAddressAndAPort(t *testing.T) {
	for text, want := range map[string]bool{"203.0.113.8:1": true, "[::1]:1": true, "203.0.113.8:0": false} {
		if got := Direct(netip.MustParseAddrPort(text)).IsValid(); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if (Path{Via: "relay-3"}).IsValid() {
		t.Error("a relay without an address beyond it is taken for a path")
	}
}

func TestDirectPathsCompareEqualInEitherFormOfAnAddress(t *testing.T) {
	a, b := netip.MustParseAddrPort("[::ffff:203.0.113.8]:5"), netip.MustParseAddrPort("203.0.113.8:5")
	if Direct(a) != Direct(b) {
		t.Errorf("got %v and %v, want one path", Direct(a), Direct(b))
	}
}
