package dnssd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/testenv/patience"
)

func testClient(servers ...netip.AddrPort) *client {
	return &client{servers: func() ([]netip.AddrPort, error) { return servers, nil }, dial: new(net.Dialer).DialContext}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	t.Cleanup(cancel)
	return ctx
}

func askPTR(t *testing.T, c *client) (answer, error) {
	t.Helper()
	return c.ask(within(t), question{"_postern._udp.example.com.", dns.TypePTR})
}

func TestAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(z *zoneServer)
		streams int
	}{
		{"plain", func(*zoneServer) {}, 0},
		{"after those of others", func(z *zoneServer) { z.stray = true }, 0},
		{"of a server without EDNS0", func(z *zoneServer) { z.edns = false }, 0},
		{"too long for a datagram", func(z *zoneServer) {
			for n := range 60 {
				rr, err := dns.NewRR("_postern._udp.example.com. 60 IN PTR g" + strings.Repeat("x", n) + "._postern._udp.example.com.")
				if err != nil {
					panic(err)
				}
				z.records = append(z.records, rr)
			}
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := newZoneServer(t, zoneText(good))
			z.change(func() { c.prepare(z) })
			a, err := askPTR(t, testClient(z.addr))
			if err != nil || len(a.records) == 0 || a.ttl != time.Minute || a.from != z.addr {
				t.Errorf("got %+v, %v", a, err)
			}
			z.change(func() {
				if z.streams != c.streams {
					t.Errorf("%d questions came by TCP, want %d", z.streams, c.streams)
				}
			})
		})
	}
}

// TestTheNextServer makes the first server fail in several ways; if it is silent, it is asked
// last.
func TestTheNextServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(z *zoneServer)
		again   int // how often two questions ask the first one
	}{
		{"refuses", func(z *zoneServer) { z.rcode = dns.RcodeRefused }, 2},
		{"is silent", func(z *zoneServer) { z.mute = true }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first, second := newZoneServer(t, zoneText(good)), newZoneServer(t, zoneText(good))
			first.change(func() { c.prepare(first) })
			client := testClient(first.addr, second.addr)
			for range 2 {
				if a, err := askPTR(t, client); err != nil || a.from != second.addr {
					t.Errorf("got %+v, %v, want the second server's answer", a, err)
				}
			}
			if got := len(first.questions()); got != c.again {
				t.Errorf("the first server was asked %d times, want %d", got, c.again)
			}
		})
	}
}

func TestNoAnswer(t *testing.T) {
	closed, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := netip.MustParseAddrPort(closed.LocalAddr().String())
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		server func(t *testing.T) netip.AddrPort
		bogus  bool
		want   string
	}{
		{"nobody there", func(*testing.T) netip.AddrPort { return nobody }, false, "cannot be reached: read: connection refused"},
		{"refused", func(t *testing.T) netip.AddrPort {
			z := newZoneServer(t, "")
			z.change(func() { z.rcode = dns.RcodeRefused })
			return z.addr
		}, false, "answers REFUSED"},
		{"a failure that goes without checking", func(t *testing.T) netip.AddrPort {
			z := newZoneServer(t, zoneText(good))
			z.change(func() { z.rcode = dns.RcodeServerFailure })
			return z.addr
		}, true, "DNSSEC validation failed: the DNS server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := askPTR(t, testClient(c.server(t)))
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errBogus) != c.bogus {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestAFailureWithAReason reads the extended error of a validating resolver.
func TestAFailureWithAReason(t *testing.T) {
	m := new(dns.Msg)
	m.SetQuestion("example.com.", dns.TypeA)
	m.Rcode = dns.RcodeServerFailure
	m.SetEdns0(udpSize, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeSignatureExpired}}
	_, err := read(m, question{"example.com.", dns.TypeA})
	if !errors.Is(err, errBogus) || !strings.Contains(err.Error(), "answers SERVFAIL (Signature Expired)") {
		t.Errorf("got %v, want a failed validation with its reason", err)
	}
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNoReachableAuthority}}
	if _, err := read(m, question{"example.com.", dns.TypeA}); errors.Is(err, errBogus) {
		t.Errorf("%v counts as a failed validation", err)
	}
}

func TestTheSystemsServers(t *testing.T) {
	for _, c := range []struct{ conf, want string }{
		{"", "127.0.0.1:53"},
		{"# none\nsearch example.com\n", "127.0.0.1:53"},
		{"nameserver 192.0.2.1\nnameserver dns.example.com\nnameserver 2001:db8::1\n", "192.0.2.1:53 [2001:db8::1]:53"},
		{strings.Repeat("nameserver 192.0.2.1\n", 9), "192.0.2.1:53 192.0.2.1:53 192.0.2.1:53 192.0.2.1:53"},
	} {
		got, err := parseServers(strings.NewReader(c.conf))
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		if err != nil || strings.Join(texts, " ") != c.want {
			t.Errorf("%q gives %q, %v; want %q", c.conf, texts, err, c.want)
		}
	}
	if got, err := systemServers("/nonexistent/resolv.conf"); err != nil || !slices.Equal(got, []netip.AddrPort{localServer()}) {
		t.Errorf("without a file: %v, %v", got, err)
	}
}
