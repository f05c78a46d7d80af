package simnet_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/testenv/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// internet is an Internet with constructors that fail the test.
type internet struct {
	*simnet.Internet
	t *testing.T
}

// virtually runs f in virtual time; a failure prints the trace.
func virtually(t *testing.T, seed uint64, f func(t *testing.T, in internet)) {
	synctest.Test(t, func(t *testing.T) {
		in := internet{simnet.New(simnet.Options{Seed: seed}), t}
		f(t, in)
		if t.Failed() {
			var b strings.Builder
			if err := in.WriteTrace(&b); err != nil {
				t.Error(err)
			}
			t.Log("trace:\n" + b.String())
		}
		in.Close()
	})
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func (in internet) host(name, addr string, within *simnet.Network, c simnet.Conditions) *simnet.Host {
	in.t.Helper()
	h, err := in.AddHost(simnet.HostOptions{Name: name, Network: within, Addrs: addrs(addr), Link: simnet.Both(c)})
	if err != nil {
		in.t.Fatal(err)
	}
	return h
}

func (in internet) nat(name, addr string, within *simnet.Network, b simnet.Behaviour) *simnet.NAT {
	in.t.Helper()
	n, err := in.AddNAT(simnet.NATOptions{Name: name, Network: within, Addrs: addrs(addr), Behaviour: b})
	if err != nil {
		in.t.Fatal(err)
	}
	return n
}

func (in internet) listen(h *simnet.Host, port uint16) *simnet.Conn {
	in.t.Helper()
	c, err := h.ListenUDP(port)
	if err != nil {
		in.t.Fatal(err)
	}
	return c
}

func (in internet) send(c *simnet.Conn, text, to string) {
	in.t.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(text), netip.MustParseAddrPort(to)); err != nil {
		in.t.Errorf("send %q to %s: %v", text, to, err)
	}
}

// receive waits for a datagram with that text and returns its source.
func (in internet) receive(c *simnet.Conn, text string) netip.AddrPort {
	in.t.Helper()
	got, from := in.read(c, time.Minute)
	if got != text {
		in.t.Errorf("at %v: got %q from %v, want %q", c.LocalAddr(), got, from, text)
	}
	return from
}

// nothing checks for a minute of virtual time that nothing arrives.
func (in internet) nothing(c *simnet.Conn) {
	in.t.Helper()
	if got, from := in.read(c, time.Minute); got != "" {
		in.t.Errorf("at %v: got %q from %v, want nothing", c.LocalAddr(), got, from)
	}
}

func (in internet) read(c *simnet.Conn, wait time.Duration) (string, netip.AddrPort) {
	in.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		in.t.Fatal(err)
	}
	buf := make([]byte, 2000)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", from
	}
	if err != nil {
		in.t.Fatal(err)
	}
	return string(buf[:n]), from
}

func TestDatagramsTakeTheTimeOfTheirLinks(t *testing.T) {
	const ms = time.Millisecond
	virtually(t, 1, func(t *testing.T, in internet) {
		a := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{Delay: 7 * ms, Rate: 8e6}), 1)
		b := in.listen(in.host("b", "192.0.2.2", nil, simnet.Conditions{Delay: 5 * ms}), 2)
		began := time.Now()
		in.send(a, strings.Repeat("x", 972), "192.0.2.2:2") // 1000 bytes with headers: 1 ms at 8 Mbit/s
		in.receive(b, strings.Repeat("x", 972))
		if d := time.Since(began); d != 13*ms {
			t.Errorf("took %v, want 13ms", d)
		}
		c := in.host("c", "192.0.2.3", nil, simnet.Conditions{})
		began = time.Now()
		in.send(in.listen(c, 1), "at once", "192.0.2.3:1")
		if d := time.Since(began); d != 0 {
			t.Errorf("to itself took %v", d)
		}
	})
}

func TestAnswersComeBackThroughNATs(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		carrier := in.nat("carrier", "198.51.100.7", nil, simnet.PortRestricted())
		home := in.nat("home", "100.64.0.5", carrier.Inside(), simnet.Symmetric())
		inner := in.listen(in.host("inner", "192.168.1.2", home.Inside(), simnet.Conditions{}), 51820)
		public := in.listen(in.host("public", "192.0.2.1", nil, simnet.Conditions{}), 51820)
		in.send(inner, "hello", "192.0.2.1:51820")
		from := in.receive(public, "hello")
		if from.Addr() != carrier.Addrs()[0] || from.Port() == 51820 {
			t.Errorf("seen as %v, want the carrier's address and the port of the symmetric NAT", from)
		}
		in.send(public, "welcome", from.String())
		if from := in.receive(inner, "welcome"); from.String() != "192.0.2.1:51820" {
			t.Errorf("the answer comes from %v", from)
		}
		stranger := in.listen(in.host("stranger", "192.0.2.9", nil, simnet.Conditions{}), 51820)
		in.send(stranger, "hi", from.String())
		in.nothing(inner)
		if n := in.Dropped()[simnet.DropFiltered]; n != 1 {
			t.Errorf("%d datagrams were filtered, want 1: %v", n, in.Dropped())
		}
		home.Reboot()
		in.send(public, "still there?", from.String())
		in.nothing(inner)
	})
}

func TestHairpin(t *testing.T) {
	for _, on := range []bool{true, false} {
		virtually(t, 1, func(t *testing.T, in internet) {
			b := simnet.FullCone()
			b.Hairpin = on
			nat := in.nat("nat", "198.51.100.7", nil, b)
			c1 := in.listen(in.host("h1", "192.168.1.2", nat.Inside(), simnet.Conditions{}), 1111)
			c2 := in.listen(in.host("h2", "192.168.1.3", nat.Inside(), simnet.Conditions{}), 2222)
			in.send(c1, "direct", "192.168.1.3:2222")
			if from := in.receive(c2, "direct"); from.String() != "192.168.1.2:1111" {
				t.Errorf("within the inside: from %v", from)
			}
			in.send(c2, "opens its mapping", "192.0.2.1:1")
			in.send(c1, "hairpin", "198.51.100.7:2222")
			if !on {
				in.nothing(c2)
				return
			}
			if from := in.receive(c2, "hairpin"); from.String() != "198.51.100.7:1111" {
				t.Errorf("comes from %v, want the outside address and port (RFC 4787 REQ-9)", from)
			}
		})
	}
}

func TestPortForwardAndNewAddress(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		nat := in.nat("nat", "198.51.100.7", nil, simnet.PortRestricted())
		inner := in.listen(in.host("inner", "192.168.1.2", nat.Inside(), simnet.Conditions{}), 51820)
		public := in.listen(in.host("public", "192.0.2.1", nil, simnet.Conditions{}), 1)
		if err := nat.Forward(40582, netip.MustParseAddrPort("192.168.1.2:51820")); err != nil {
			t.Fatal(err)
		}
		in.send(public, "in", "198.51.100.7:40582")
		in.receive(inner, "in")
		if err := nat.SetAddrs(addrs("198.51.100.99")...); err != nil {
			t.Fatal(err)
		}
		in.send(public, "in", "198.51.100.7:40582")
		in.send(public, "in", "198.51.100.99:40582")
		in.nothing(inner)
		in.send(inner, "out", "192.0.2.1:1")
		if from := in.receive(public, "out"); from.String() != "198.51.100.99:51820" {
			t.Errorf("leaves from %v, want the new address", from)
		}
		if err := nat.SetAddrs(addrs("192.0.2.1")...); !errors.Is(err, simnet.ErrAddress) {
			t.Errorf("an address that is taken: got %v, want ErrAddress", err)
		}
	})
}

// Two gateways behind NATs, one of which replies to strays: unsolicited dialling poisons it,
// openers that expire between the two NATs do not.
func TestLowTTLOpenersAvoidPoisoning(t *testing.T) {
	for _, openers := range []bool{false, true} {
		virtually(t, 1, func(t *testing.T, in internet) {
			natA := in.nat("natA", "198.51.100.1", nil, simnet.Conntrack())
			natB := in.nat("natB", "198.51.100.2", nil, simnet.Poisonable())
			a := in.listen(in.host("a", "10.0.0.1", natA.Inside(), simnet.Conditions{}), 51820)
			b := in.listen(in.host("b", "10.0.0.2", natB.Inside(), simnet.Conditions{}), 51820)
			toA, toB := netip.MustParseAddrPort("198.51.100.1:51820"), netip.MustParseAddrPort("198.51.100.2:51820")
			if openers {
				for _, o := range []struct {
					c  *simnet.Conn
					to netip.AddrPort
				}{{a, toB}, {b, toA}} {
					if _, err := o.c.WriteToTTL([]byte("opener"), o.to, 2); err != nil {
						t.Fatal(err)
					}
				}
				if n := in.Dropped()[simnet.DropTTL]; n != 2 {
					t.Errorf("%d openers died between the NATs, want 2", n)
				}
			}
			in.send(a, "probe", toB.String())
			in.send(b, "probe", toA.String())
			if openers {
				in.receive(b, "probe")
				in.receive(a, "probe")
				return
			}
			for range 10 { // retries do not heal it
				in.send(a, "probe", toB.String())
				in.send(b, "probe", toA.String())
				time.Sleep(time.Second) // virtual
			}
			in.nothing(a)
			in.send(b, "probe", toA.String()) // silence did
			in.send(a, "probe", toB.String())
			in.receive(b, "probe")
		})
	}
}

func TestRoutedIPv6BehindAStatefulFirewall(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		router, err := in.AddNAT(simnet.NATOptions{
			Name: "router", Addrs: addrs("198.51.100.7", "2001:db8:1::1"), Behaviour: simnet.PortRestricted(),
			Routed: []netip.Prefix{netip.MustParsePrefix("2001:db8:1:2::/64")},
			Link:   simnet.LinkOptions{Firewall: simnet.Firewall{Stateful: true}},
		})
		if err != nil {
			t.Fatal(err)
		}
		h, err := in.AddHost(simnet.HostOptions{Name: "h", Network: router.Inside(), Addrs: addrs("192.168.1.2", "2001:db8:1:2::5")})
		if err != nil {
			t.Fatal(err)
		}
		inner := in.listen(h, 1)
		p, err := in.AddHost(simnet.HostOptions{Name: "p", Addrs: addrs("192.0.2.1", "2001:db8::1")})
		if err != nil {
			t.Fatal(err)
		}
		public := in.listen(p, 2)
		in.send(public, "unasked", "[2001:db8:1:2::5]:1")
		in.nothing(inner)
		in.send(inner, "six", "[2001:db8::1]:2")
		if from := in.receive(public, "six"); from.String() != "[2001:db8:1:2::5]:1" {
			t.Errorf("IPv6 is seen as %v", from)
		}
		in.send(public, "asked", "[2001:db8:1:2::5]:1")
		in.receive(inner, "asked")
		in.send(inner, "four", "192.0.2.1:2")
		if from := in.receive(public, "four"); from.String() != "198.51.100.7:1" {
			t.Errorf("IPv4 is seen as %v", from)
		}
	})
}

func TestAHostWithTwoInterfaces(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		nat := in.nat("nat", "198.51.100.7", nil, simnet.PortRestricted())
		h := in.host("h", "192.168.1.2", nat.Inside(), simnet.Conditions{})
		i, err := h.AddInterface("h-wan", nil, addrs("203.0.113.5"), simnet.LinkOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := in.listen(h, 1)
		p := in.listen(in.host("p", "192.0.2.1", nil, simnet.Conditions{}), 2)
		in.send(c, "direct", "192.0.2.1:2")
		if from := in.receive(p, "direct"); from.String() != "203.0.113.5:1" {
			t.Errorf("seen as %v, want the interface on the destination's network", from)
		}
		in.send(p, "back", "203.0.113.5:1")
		in.receive(c, "back")
		if err := i.SetAddrs(addrs("203.0.113.6")...); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(h.Addrs()), "[192.168.1.2 203.0.113.6]"; got != want {
			t.Errorf("addresses: got %s, want %s", got, want)
		}
		bound, err := h.ListenAddrPort(netip.MustParseAddrPort("192.168.1.2:7"))
		if err != nil {
			t.Fatal(err)
		}
		in.send(bound, "bound", "192.0.2.1:2")
		if from := in.receive(p, "bound"); from.String() != "198.51.100.7:7" {
			t.Errorf("a bound socket is seen as %v, want the NAT's address", from)
		}
	})
}
