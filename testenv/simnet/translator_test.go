package simnet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

var (
	epoch   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wan     = netip.MustParseAddr("198.51.100.7")
	inside1 = netip.MustParseAddrPort("192.168.1.2:51820")
	inside2 = netip.MustParseAddrPort("192.168.1.3:51820")
	remote1 = netip.MustParseAddrPort("203.0.113.1:1000")
	// otherPort shares remote1's address, otherAddr its port.
	otherPort = netip.MustParseAddrPort("203.0.113.1:2000")
	otherAddr = netip.MustParseAddrPort("203.0.113.2:1000")
)

func newModel(t *testing.T, b Behaviour) *translator {
	t.Helper()
	b, err := b.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return newTranslator(b, newDice(1, "nat"), []netip.Addr{wan})
}

// out sends an outbound datagram and requires success.
func out(t *testing.T, n *translator, now time.Time, src, dst netip.AddrPort) netip.AddrPort {
	t.Helper()
	got, reason := n.outbound(now, src, dst)
	if reason != "" {
		t.Fatalf("%v → %v at %v: dropped: %s", src, dst, now.Sub(epoch), reason)
	}
	if got.Addr() != wan {
		t.Fatalf("%v → %v leaves from %v, want the address %v", src, dst, got, wan)
	}
	return got
}

// admits reports whether a datagram from the outside gets in, and checks the destination.
func admits(t *testing.T, n *translator, now time.Time, from, to, want netip.AddrPort) bool {
	t.Helper()
	got, reason := n.inbound(now, from, to)
	if reason == "" && got != want {
		t.Fatalf("%v → %v went to %v, want %v", from, to, got, want)
	}
	return reason == ""
}

func TestMappingAndFilteringFollowRFC4787(t *testing.T) {
	kinds := []Dependence{EndpointIndependent, AddressDependent, AddressAndPortDependent}
	for _, m := range kinds {
		for _, f := range kinds {
			t.Run(fmt.Sprintf("%v mapping, %v filtering", m, f), func(t *testing.T) {
				n := newModel(t, Behaviour{Mapping: m, Filtering: f, Ports: RandomPorts})
				first := out(t, n, epoch, inside1, remote1)
				// §5: who gets in to a mapping made by sending only to remote1.
				for _, c := range []struct {
					name string
					from netip.AddrPort
					want bool
				}{
					{"the endpoint sent to", remote1, true},
					{"another port of its address", otherPort, f != AddressAndPortDependent},
					{"another address", otherAddr, f == EndpointIndependent},
				} {
					if got := admits(t, n, epoch, c.from, first, inside1); got != c.want {
						t.Errorf("%s gets in: got %v, want %v", c.name, got, c.want)
					}
				}
				// §4.1: which destinations share a mapping.
				for _, c := range []struct {
					name string
					to   netip.AddrPort
					same bool
				}{
					{"the same endpoint", remote1, true},
					{"another port of its address", otherPort, m != AddressAndPortDependent},
					{"another address", otherAddr, m == EndpointIndependent},
				} {
					if got := out(t, n, epoch, inside1, c.to); (got == first) != c.same {
						t.Errorf("to %s: leaves from %v, the first from %v, want the same: %v", c.name, got, first, c.same)
					}
				}
				if got := out(t, n, epoch, inside2, remote1); got == first {
					t.Error("two inside hosts share a mapping")
				}
			})
		}
	}
}

func TestMappingsExpire(t *testing.T) {
	const s = time.Second
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	for _, c := range []struct {
		name    string
		b       Behaviour
		traffic func(n *translator, outside netip.AddrPort)
		lives   time.Duration // from epoch: the last moment at which a datagram gets in
	}{
		{"nothing came back", PortRestricted(), func(*translator, netip.AddrPort) {}, 30 * s},
		{"an answer", PortRestricted(), func(n *translator, o netip.AddrPort) {
			n.inbound(at(10*s), remote1, o)
		}, 130 * s},
		{"an answer at the last moment", PortRestricted(), func(n *translator, o netip.AddrPort) {
			n.inbound(at(30*s-1), remote1, o)
		}, 150*s - 1},
		{"outbound refresh", PortRestricted(), func(n *translator, o netip.AddrPort) {
			n.outbound(at(20*s), inside1, remote1)
		}, 50 * s},
		{"outbound after an answer", PortRestricted(), func(n *translator, o netip.AddrPort) {
			n.inbound(at(1*s), remote1, o)
			n.outbound(at(100*s), inside1, remote1)
		}, 220 * s},
		{"inbound does not refresh", Behaviour{Filtering: AddressAndPortDependent, OutboundRefreshOnly: true},
			func(n *translator, o netip.AddrPort) { n.inbound(at(10*s), remote1, o) }, 30 * s},
		{"inbound does not refresh, outbound does, longer after an answer", Behaviour{Filtering: AddressAndPortDependent, OutboundRefreshOnly: true},
			func(n *translator, o netip.AddrPort) {
				n.inbound(at(10*s), remote1, o)
				n.outbound(at(20*s), inside1, remote1)
			}, 140 * s},
		{"sending elsewhere does not keep the filter open", PortRestricted(), func(n *translator, o netip.AddrPort) {
			n.outbound(at(25*s), inside1, otherAddr)
		}, 30 * s},
		{"other timeouts", Behaviour{Unreplied: 2 * s, Timeout: 5 * s}, func(*translator, netip.AddrPort) {}, 2 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				n := newModel(t, c.b)
				outside := out(t, n, epoch, inside1, remote1)
				c.traffic(n, outside)
				now := epoch.Add(c.lives - time.Nanosecond)
				if late {
					now = epoch.Add(c.lives)
				}
				if got := admits(t, n, now, remote1, outside, inside1); got == late {
					t.Errorf("%v after the start it gets in: %v, want %v", now.Sub(epoch), got, !late)
				}
			}
		})
	}
}

func TestAnAnswerThatIsTooLateRevivesNothing(t *testing.T) {
	n := newModel(t, FullCone())
	outside := out(t, n, epoch, inside1, remote1)
	for _, d := range []time.Duration{0, time.Second} {
		if admits(t, n, epoch.Add(defaultUnreplied+d), remote1, outside, inside1) {
			t.Errorf("%v after the mapping expired a datagram gets in", d)
		}
	}
}

func TestANewSessionStartsUnreplied(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{151*s - 1, true}, {151 * s, false}} {
		n := newModel(t, PortRestricted())
		outside := out(t, n, epoch, inside1, remote1)
		admits(t, n, epoch, remote1, outside, inside1)  // answered: the session lives 120 s
		out(t, n, epoch.Add(119*s), inside1, otherAddr) // the mapping lives on
		if got := out(t, n, epoch.Add(121*s), inside1, remote1); got != outside {
			t.Fatalf("the mapping moved from %v to %v", outside, got)
		}
		if got := admits(t, n, epoch.Add(c.at), remote1, outside, inside1); got != c.want {
			t.Errorf("%v after the second session began at 2m1s: gets in %v, want %v", c.at-121*s, got, c.want)
		}
	}
}

func TestExpiredEntriesAreForgotten(t *testing.T) {
	n := newModel(t, Poisonable())
	for i := range 1000 {
		now := epoch.Add(time.Duration(i) * time.Second)
		to := netip.AddrPortFrom(remote1.Addr(), uint16(1+i))
		out(t, n, now, inside1, to)
		n.inbound(now, to, netip.AddrPortFrom(wan, 9))
	}
	if m, s := len(n.byInside), len(n.strays); m > 41 || s > 41 {
		t.Errorf("%d mappings and %d strays are kept, want those of the last 40 s", m, s)
	}
}

func TestPorts(t *testing.T) {
	port := func(n *translator, src, dst netip.AddrPort) uint16 { return out(t, n, epoch, src, dst).Port() }
	t.Run("preserved where free", func(t *testing.T) {
		n := newModel(t, PortRestricted())
		if p := port(n, inside1, remote1); p != 51820 {
			t.Errorf("the first host gets %d, want its own", p)
		}
		if p := port(n, inside2, remote1); p == 51820 || p < firstPort {
			t.Errorf("the second host gets %d, want another, not a system port", p)
		}
	})
	t.Run("overloaded", func(t *testing.T) {
		n := newModel(t, Conntrack())
		if a, b := port(n, inside1, remote1), port(n, inside2, otherAddr); a != 51820 || b != 51820 {
			t.Errorf("to different destinations: got %d and %d, want both to keep their port", a, b)
		}
		if p := port(n, inside2, remote1); p == 51820 {
			t.Error("two hosts talk to one destination from one port")
		}
		o := netip.AddrPortFrom(wan, 51820)
		if !admits(t, n, epoch, remote1, o, inside1) || !admits(t, n, epoch, otherAddr, o, inside2) {
			t.Error("an answer to a shared port did not get in")
		}
	})
	t.Run("sequential", func(t *testing.T) {
		n := newModel(t, Behaviour{Mapping: AddressAndPortDependent, Ports: SequentialPorts, PortMin: 20000, PortMax: 20001})
		if a, b := port(n, inside1, remote1), port(n, inside1, otherPort); a != 20000 || b != 20001 {
			t.Errorf("got %d and %d, want 20000 and 20001", a, b)
		}
		if _, reason := n.outbound(epoch, inside1, otherAddr); reason != DropNoPort {
			t.Errorf("with every port taken: got %q, want %q", reason, DropNoPort)
		}
		if p := out(t, n, epoch.Add(defaultUnreplied), inside1, otherAddr).Port(); p != 20000 {
			t.Errorf("after the others expired: got %d, want 20000", p)
		}
	})
	t.Run("random in a small range", func(t *testing.T) {
		n := newModel(t, Behaviour{Mapping: AddressAndPortDependent, Ports: RandomPorts, PortMin: 20000, PortMax: 20099})
		seen := make(map[uint16]bool)
		for i := range 100 {
			p := port(n, inside1, netip.AddrPortFrom(remote1.Addr(), uint16(1+i)))
			if seen[p] || p < 20000 || p > 20099 {
				t.Fatalf("mapping %d: port %d is taken or outside the range", i, p)
			}
			seen[p] = true
		}
	})
	t.Run("not kept, but one for all", func(t *testing.T) {
		n := newModel(t, PortChanging())
		a, b := port(n, inside1, remote1), port(n, inside1, otherAddr)
		if a != b || a < 20000 || a > 29999 {
			t.Errorf("got %d and %d, want one port of 20000 to 29999", a, b)
		}
	})
	t.Run("table full", func(t *testing.T) {
		n := newModel(t, Behaviour{Mapping: AddressAndPortDependent, MaxMappings: 1})
		port(n, inside1, remote1)
		if _, reason := n.outbound(epoch, inside1, otherPort); reason != DropTableFull {
			t.Errorf("got %q, want %q", reason, DropTableFull)
		}
	})
	t.Run("no address of the family", func(t *testing.T) {
		n := newModel(t, FullCone())
		v6 := netip.MustParseAddrPort("[2001:db8::2]:1")
		if _, reason := n.outbound(epoch, v6, netip.MustParseAddrPort("[2001:db8::1]:1")); reason != DropForeignSource {
			t.Errorf("got %q, want %q", reason, DropForeignSource)
		}
	})
}

func TestPairedPooling(t *testing.T) {
	b, err := Symmetric().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	n := newTranslator(b, newDice(1, "nat"), []netip.Addr{wan, netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("2001:db8::1")})
	used := make(map[netip.Addr]bool)
	for i := range 32 {
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(i)}), 51820)
		a, _ := n.outbound(epoch, src, remote1)
		b, _ := n.outbound(epoch, src, otherAddr)
		if a.Addr() != b.Addr() || !a.Addr().Is4() {
			t.Errorf("%v leaves from %v and %v, want one IPv4 address", src, a, b)
		}
		used[a.Addr()] = true
	}
	if len(used) != 2 {
		t.Errorf("%d addresses are used, want both", len(used))
	}
}

func TestPortForward(t *testing.T) {
	n := newModel(t, PortRestricted())
	o := netip.AddrPortFrom(wan, 40582)
	n.forward(o, inside1)
	for range 2 {
		if !admits(t, n, epoch, otherAddr, o, inside1) {
			t.Error("a stranger does not get in to a forwarded port")
		}
		if got := out(t, n, epoch, inside1, remote1); got != o {
			t.Errorf("the forwarded endpoint sends from %v, want %v", got, o)
		}
		n.reboot()
	}
	if got := out(t, n, epoch, netip.AddrPortFrom(inside2.Addr(), 40582), remote1); got == o {
		t.Error("another host was given the forwarded port")
	}
	if !n.unforward(o) || n.unforward(o) {
		t.Error("unforward: want true, then false")
	}
	if admits(t, n, epoch, otherAddr, o, inside1) {
		t.Error("a stranger gets in after the forward ended")
	}
}
