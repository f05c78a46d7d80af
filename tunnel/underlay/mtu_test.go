package underlay

import "testing"

func TestOverlayMTU(t *testing.T) {
	for _, test := range []struct {
		name   string
		mtu    int
		v6, v4 int
	}{
		{"Ethernet", 1500, 1420, 1420},
		{"jumbo frames", 9000, 1420, 1420},
		{"VXLAN", 1450, 1370, 1390},
		{"PPPoE", 1492, 1412, 1420},
		{"IPv6's least", 1280, 1280, 1280},
		{"unknown", 0, 1280, 1280},
	} {
		if got := OverlayMTU(test.mtu, true); got != test.v6 {
			t.Errorf("%s over IPv6: got %d, want %d", test.name, got, test.v6)
		}
		if got := OverlayMTU(test.mtu, false); got != test.v4 {
			t.Errorf("%s over IPv4: got %d, want %d", test.name, got, test.v4)
		}
	}
}
