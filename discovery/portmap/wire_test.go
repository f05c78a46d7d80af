package portmap

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestRequestsAreWrittenAsTheRFCsSay(t *testing.T) {
	client := netip.MustParseAddr("192.168.7.2")
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"PCP MAP", pcpRequest{
			opcode: opMap, lifetime: 3600, client: client, nonce: nonce{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
			internal: 51820, external: netip.MustParseAddrPort("203.0.113.20:4000"),
		}.encode(), "02 01 0000 00000e10 00000000000000000000ffffc0a80702" +
			"0102030405060708090a0b0c 11 000000 ca6c 0fa0 00000000000000000000ffffcb007114"},
		{"PCP ANNOUNCE", pcpRequest{opcode: opAnnounce, client: netip.MustParseAddr("2001:db8::7")}.encode(),
			"02 00 0000 00000000 20010db8000000000000000000000007"},
		{"NAT-PMP address", natpmpAddress(), "00 00"},
		{"NAT-PMP map", natpmpMap(51820, 4000, 3600), "00 01 0000 ca6c 0fa0 00000e10"},
		{"NAT-PMP delete", natpmpMap(51820, 0, 0), "00 01 0000 ca6c 0000 00000000"},
	} {
		if want := strings.ReplaceAll(c.want, " ", ""); hex.EncodeToString(c.got) != want {
			t.Errorf("%s: got %x, want %s", c.name, c.got, want)
		}
	}
}

func TestEpochs(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_000_000+int64(s), 0) }
	type heard struct {
		at    int
		epoch uint32
	}
	for _, c := range []struct {
		name        string
		first, then heard
		pcp, natpmp bool
	}{
		{"in step", heard{0, 100}, heard{60, 160}, false, false},
		{"1 s back", heard{0, 100}, heard{0, 99}, false, false},
		{"restarted", heard{0, 1000}, heard{30, 3}, true, true},
		{"restarted long ago", heard{0, 100}, heard{1000, 500}, true, true},
		{"slow by 6 %", heard{0, 100}, heard{1000, 1039}, false, false},
		{"ran ahead", heard{0, 100}, heard{30, 200}, true, false}, // NAT-PMP accepts that
		{"after 136 years", heard{0, 1<<32 - 10}, heard{30, 20}, true, true},
	} {
		var p, n epochClock
		if p.heardPCP(at(c.first.at), c.first.epoch) || n.heardNATPMP(at(c.first.at), c.first.epoch) {
			t.Errorf("%s: the first one counts as a loss", c.name)
		}
		if got := p.heardPCP(at(c.then.at), c.then.epoch); got != c.pcp {
			t.Errorf("%s: PCP lost = %v", c.name, got)
		}
		if got := n.heardNATPMP(at(c.then.at), c.then.epoch); got != c.natpmp {
			t.Errorf("%s: NAT-PMP lost = %v", c.name, got)
		}
	}
}

const routes = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0107A8C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	0108A8C0	0003	0	0	100	00000000	0	0	0
ppp0	00000000	00000000	0001	0	0	50	00000000	0	0	0
eth0	0008A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
`

func TestTheRouterIsThatOfTheBestDefaultRoute(t *testing.T) {
	if got, ok := defaultRouter([]byte(routes)); !ok || got != netip.MustParseAddr("192.168.8.1") {
		t.Errorf("got %v %v, want 192.168.8.1", got, ok)
	}
	if got, ok := defaultRouter([]byte(routes[:100])); ok {
		t.Errorf("without a default route: got %v", got)
	}
}

func FuzzPCP(f *testing.F) {
	f.Add(pcpRequest{opcode: opMap, client: netip.IPv4Unspecified(), external: netip.AddrPortFrom(netip.IPv4Unspecified(), 1)}.encode())
	f.Add([]byte("\x02\x81\x00\x02" + strings.Repeat("\x00", 20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parsePCP(b)
		if err == nil && r.result == pcpSuccess && r.opcode == opMap && !r.full {
			t.Errorf("a mapping without its fields: %+v", r)
		}
	})
}

func FuzzNATPMP(f *testing.F) {
	f.Add([]byte{0, 128, 0, 0, 0, 0, 0, 9, 203, 0, 113, 20})
	f.Add([]byte{0, 129, 0, 0, 0, 0, 0, 9, 0xca, 0x6c, 0xca, 0x6c, 0, 0, 14, 16})
	f.Add([]byte{0, 129, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseNATPMP(b)
		if err == nil && r.result == natpmpSuccess && r.opcode == opAddress && !r.address.Is4() {
			t.Errorf("an address that is none: %+v", r)
		}
	})
}

func FuzzDefaultRouter(f *testing.F) {
	f.Add([]byte(routes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, ok := defaultRouter(b); ok && !a.Is4() {
			t.Errorf("router %v", a)
		}
	})
}

// FuzzUPnP parses arbitrary answers of a device; URLs must always lead to the router.
func FuzzUPnP(f *testing.F) {
	router := netip.MustParseAddr("192.168.7.1")
	f.Add([]byte("HTTP/1.1 200 OK\r\nLOCATION: http://192.168.7.1:5000/rootDesc.xml\r\n\r\n"))
	f.Add([]byte(`<root><URLBase>http://192.168.7.1/</URLBase><device><serviceList><service>` +
		`<serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType><controlURL>ctl</controlURL></service></serviceList></device></root>`))
	f.Add([]byte(`<e><errorCode>718</errorCode></e>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := parseLocation(b, router); err == nil && u.Hostname() != "192.168.7.1" {
			t.Errorf("location %v", u)
		}
		at, err := routerURL(nil, "http://192.168.7.1:5000/rootDesc.xml", router)
		if err != nil {
			t.Fatal(err)
		}
		services, err := parseDescription(b, at, router)
		for _, s := range services {
			if u, err := routerURL(nil, s.control, router); err != nil || u.Hostname() != "192.168.7.1" {
				t.Errorf("control URL %q", s.control)
			}
		}
		if err != nil && len(services) > 0 {
			t.Error("services and an error")
		}
		_, _ = leaves(b)
	})
}
