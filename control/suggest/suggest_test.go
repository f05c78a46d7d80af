package suggest

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"status", "stdio", "discovery", "mtu", "apiServer", "json"}
	for got, want := range map[string]string{
		"status": "status", "staus": "status", "sattus": "status", "Status": "status", "statuses": "status",
		"discovrey": "discovery", "apiserver": "apiServer", "api-server": "apiServer", "jsn": "json", "mut": "mtu",
		"yaml": "", "m": "", "xyz": "", "": "", "frobnicate": "", strings.Repeat("s", 1<<16): "",
	} {
		if n := Nearest(got, known); n != want {
			t.Errorf("%.20q: got %q, want %q", got, n, want)
		}
	}
}

func TestAnUnknownPeer(t *testing.T) {
	many := make([]string, 0, 20)
	for c := range 20 {
		many = append(many, "gateway-"+strings.Repeat(string(rune('a'+c)), 4))
	}
	for _, c := range []struct {
		got   string
		peers []string
		hint  string
	}{
		{"x", nil, "there are none yet: `postern invite` makes a ticket for one"},
		{"claud", []string{"edge", "cloud"}, "did you mean cloud?"},
		{"x", []string{"edge", "cloud"}, "there are: cloud, edge"},
		{"x", many, "there are: " + strings.Join(many[:12], ", ") + ", 8 more"},
	} {
		p := Peer(c.got, c.peers)
		if p.Hint != c.hint || p.Message != `no peer is called "`+c.got+`"` || !p.Usage {
			t.Errorf("%q of %d peers: %+v", c.got, len(c.peers), p)
		}
	}
	if p := Peer(strings.Repeat("\x1b", 1<<16), nil); len(p.Message) > 400 || strings.ContainsRune(p.Message, 0x1b) {
		t.Errorf("a long name: %q", p.Message)
	}
}
