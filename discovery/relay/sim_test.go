package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// kinds are the common NATs.
var kinds = map[string]simnet.Behaviour{
	"full cone": simnet.FullCone(), "address-restricted": simnet.AddressRestricted(),
	"port-restricted": simnet.PortRestricted(), "symmetric": simnet.Symmetric(),
	"conntrack": simnet.Conntrack(), "poisonable": simnet.Poisonable(),
}

func TestItAllocatesAndRelaysBehindEveryNAT(t *testing.T) {
	for name, behaviour := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
				edge := in.behind("home", "198.51.100.1", behaviour)
				g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
				a := g.allocated(t, nil)
				if a.Relayed.Addr() != relayAddr || a.Mapped.Addr() != netip.MustParseAddr("198.51.100.1") || a.Transport != "udp" {
					t.Errorf("the allocation is %+v", a)
				}
				peer, at := in.peerOn("192.0.2.9")
				if err := g.trySend(a.ID, "too early", at); !errors.Is(err, relay.ErrNotPermitted) {
					t.Errorf("sending to an address that nobody permitted: %v, want ErrNotPermitted", err)
				}
				g.Permit([]netip.Addr{at.Addr()})
				synctest.Wait() // the change has reached the sending side
				if d := exchange(t, func(s string) error { return g.trySend(a.ID, s, at) }, peer.others); d.from != a.Relayed {
					t.Errorf("the peer sees %v, want the relayed address %v", d.from, a.Relayed)
				}
				if d := exchange(t, func(s string) error { return peer.WriteTo([]byte(s), a.Relayed) }, g.inbox); d.from != at || d.via != a.ID {
					t.Errorf("got a datagram from %v via %s, want from %v via %s", d.from, d.via, at, a.ID)
				}
				g.stop()
				if n := in.server.Allocations(); n != 0 {
					t.Errorf("after the end the server still has %d allocations", n)
				}
			})
		})
	}
}

// A server in a network without IPv4 answers 440 unless an IPv6 address is requested.
func TestAServerWithoutIPv4RelaysIPv6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		in.server.Close()
		relay6 := netip.MustParseAddr("2001:db8::1")
		if err := in.relay.SetAddrs(relayAddr, relay6); err != nil {
			t.Fatal(err)
		}
		var err error
		if in.server, err = turnserver.Serve(turnserver.Sockets{
			Packets: []net.PacketConn{in.listen(in.relay, turnserver.Port)}, RelayAddr: relay6,
			ListenRelay: func(port int) (net.PacketConn, error) {
				return in.relay.ListenAddrPort(netip.AddrPortFrom(relay6, uint16(port)))
			},
		}, turnserver.Options{Users: users}); err != nil {
			t.Fatal(err)
		}
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		a := g.allocated(t, nil)
		if a.Relayed.Addr() != relay6 {
			t.Errorf("the relayed address is %v, want one of %v", a.Relayed, relay6)
		}
		peer, at := in.peerOn("2001:db8::9")
		g.Permit([]netip.Addr{at.Addr()})
		synctest.Wait() // the change has reached the sending side
		if d := exchange(t, func(s string) error { return g.trySend(a.ID, s, at) }, peer.others); d.from != a.Relayed {
			t.Errorf("the peer sees %v, want %v", d.from, a.Relayed)
		}
		if d := exchange(t, func(s string) error { return peer.WriteTo([]byte(s), a.Relayed) }, g.inbox); d.from != at {
			t.Errorf("got a datagram from %v, want one from %v", d.from, at)
		}
		time.Sleep(time.Hour) // virtual; it is refreshed
		if still, _ := g.Allocation(); still != a {
			t.Errorf("an hour later the allocation is %+v, want still %+v", still, a)
		}
		g.stop()
		if n := in.server.Allocations(); n != 0 {
			t.Errorf("after the end the server still has %d allocations", n)
		}
	})
}

func TestTwoStrangersMeetByRelayedAddressesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		var gateways []*gateway
		var allocations []relay.Allocation
		for _, name := range []string{"198.51.100.1", "198.51.100.2"} {
			edge := in.behind("nat "+name, name, simnet.Symmetric())
			g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
			gateways, allocations = append(gateways, g), append(allocations, g.allocated(t, nil))
		}
		for i, g := range gateways {
			other, to := gateways[1-i], allocations[1-i]
			d := exchange(t, func(s string) error { return g.trySend(allocations[i].ID, s, to.Relayed) }, other.inbox)
			if d.from != allocations[i].Relayed {
				t.Errorf("a datagram came from %v, want %v", d.from, allocations[i].Relayed)
			}
		}
	})
}

// losing is a way to lose an allocation.
type losing struct {
	name string
	lose func(in *inet, edge site)
	// noticed limits the time until the loss is known without a Check, checked with one.
	noticed, checked time.Duration
}

func TestALostAllocationIsNoticedAndReplaced(t *testing.T) {
	restart := func(in *inet, _ site) {
		in.server.Close()
		in.serve(turnserver.Options{})
	}
	for _, c := range []losing{
		{"the server restarts", restart, 70 * time.Second, 2 * time.Second},
		{"the NAT forgets", func(_ *inet, s site) { s.nat.Reboot() }, 30 * time.Second, 4 * time.Second},
	} {
		for _, suspect := range []bool{false, true} {
			name, bound := c.name+", unnoticed", c.noticed
			if suspect {
				name, bound = c.name+", and somebody suspects it", c.checked
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
					edge := in.behind("home", "198.51.100.1", simnet.Symmetric())
					g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
					first := g.allocated(t, nil)
					time.Sleep(10 * time.Second) // in virtual time
					began := time.Now()
					c.lose(in, edge)
					if suspect {
						g.Check()
					}
					second := g.allocated(t, func(a relay.Allocation) bool { return a.ID != first.ID })
					if took := time.Since(began); took > bound+time.Second {
						t.Errorf("the next allocation came after %v, want within %v and an exchange", took, bound)
					}
					peer, at := in.peerOn("192.0.2.9")
					g.Permit([]netip.Addr{at.Addr()})
					synctest.Wait()
					exchange(t, func(s string) error { return g.trySend(second.ID, s, at) }, peer.others)
					if err := g.trySend(first.ID, "late", at); !errors.Is(err, relay.ErrClosed) {
						t.Errorf("sending over the lost allocation: %v, want ErrClosed", err)
					}
				})
			})
		}
	}
}

// A day idle: nonces become stale, permissions and NAT mappings would expire.
func TestAnIdleAllocationLastsAndCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.Symmetric())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		a := g.allocated(t, nil)
		peer, at := in.peerOn("192.0.2.9")
		g.Permit([]netip.Addr{at.Addr()})
		synctest.Wait()
		time.Sleep(24 * time.Hour)
		if now, ok := g.Allocation(); !ok || now != a {
			t.Fatalf("after a day the allocation is %+v, want still %+v; %+v", now, a, g.Status())
		}
		d := exchange(t, func(s string) error { return g.trySend(a.ID, s, at) }, peer.others)
		if !strings.HasSuffix(string(d.b), ", 0") {
			t.Errorf("the peer got %q, want the very first datagram: the permission had lapsed", d.b)
		}
		var cost uint64
		for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
			cost += edge.host.Link().Counters(way).Bytes
		}
		if t.Logf("a day idle: %d bytes", cost); cost > 1_000_000 {
			t.Errorf("an idle allocation with one permission costs %d bytes a day", cost)
		}
	})
}

func TestLossDoesNotCostTheAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Loss: 0.1, Delay: 20 * time.Millisecond}))
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		a := g.allocated(t, nil)
		time.Sleep(6 * time.Hour)
		if now, ok := g.Allocation(); !ok || now != a {
			t.Errorf("with a tenth lost each way, after 6 hours the allocation is %+v, want still %+v", now, a)
		}
		if rtt := g.Status().RTT; rtt < 40*time.Millisecond || rtt > 100*time.Millisecond {
			t.Errorf("the round trip is %v, want 40 ms", rtt)
		}
	})
}

func TestASlowServerIsWaitedFor(t *testing.T) {
	for transport, bound := range map[string]time.Duration{relay.TransportUDP: 8 * time.Second, relay.TransportAuto: 15 * time.Second} {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Delay: 900 * time.Millisecond}))
				edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
				server := account
				server.Transport = transport
				began := time.Now()
				g := start(t, relay.Options{Server: server, Dial: refuse, Socket: newSocket(t, in.listen(edge.host, 51820))})
				g.allocated(t, nil)
				if took := time.Since(began); took > bound {
					t.Errorf("a server 1.8 s away took %v, want at most %v", took, bound)
				}
			})
		})
	}
}

func TestAnOutageIsSurvivedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		first := g.allocated(t, nil)
		relayLink := in.relay.Link()
		relayLink.SetDown(true)
		began := time.Now()
		g.Check()
		eventually(t, "the loss is known", func() bool { _, ok := g.Allocation(); return !ok })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the loss was known after %v, want within 2 s of Check", took)
		}
		time.Sleep(5 * time.Minute)
		s := g.Status()
		if !strings.Contains(s.Err, "no answer over UDP from 203.0.113.1:3478") || !strings.Contains(s.Err, "is UDP blocked") {
			t.Errorf("the status says %q", s.Err)
		}
		relayLink.SetDown(false)
		began = time.Now()
		g.allocated(t, func(a relay.Allocation) bool { return a.ID != first.ID })
		if took := time.Since(began); took > 45*time.Second {
			t.Errorf("back after %v, want within one backoff and attempt", took)
		}
		if s := g.Status(); s.Err != "" || !s.NextTry.IsZero() {
			t.Errorf("when all is well the status says %+v", s)
		}
	})
}

// Ask reports within 3 s whether the server answers. The allocation is kept as long as without
// it, and is still there when the server is back.
func TestWhoAsksKnowsSoonWhetherTheServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		first := g.allocated(t, nil)
		ask := func() relay.Status {
			g.Ask()
			if g.Status().AskedAt.IsZero() {
				t.Error("nobody is asked")
			}
			began := time.Now()
			eventually(t, "an answer, or none", func() bool { return g.Status().AskedAt.IsZero() })
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("that took %v, want 3 s at most", took)
			}
			return g.Status()
		}
		if s := ask(); s.Err != "" {
			t.Errorf("of a server that answers: %q", s.Err)
		}
		in.relay.Link().SetDown(true)
		if s := ask(); s.Fault != relay.FaultSilent || !strings.Contains(s.Err, "no answer over UDP from 203.0.113.1:3478") || s.Relayed != first.Relayed {
			t.Errorf("of a server that is silent: %+v", s)
		}
		in.relay.Link().SetDown(false)
		eventually(t, "an answer to the next request", func() bool { return g.Status().Err == "" })
		if a, ok := g.Allocation(); !ok || a != first {
			t.Errorf("got %+v, want still %+v", a, first)
		}
	})
}

// Ask does not make the client give up sooner: neither if the server is away for less than the
// usual patience, nor if most requests or answers are lost.
func TestWhoAsksDoesNotCostTheAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		first := g.allocated(t, nil)
		time.Sleep(time.Second)
		in.relay.Link().SetDown(true)
		g.Ask()
		time.Sleep(8 * time.Second)
		in.relay.Link().SetDown(false)
		eventually(t, "an answer", func() bool { return g.Status().Err == "" })
		if a, ok := g.Allocation(); !ok || a != first {
			t.Errorf("after 8 s without an answer: got %+v, want still %+v", a, first)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Loss: 0.3, Delay: 200 * time.Millisecond}))
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		first := g.allocated(t, nil)
		for range 4 * time.Hour / (5 * time.Second) {
			g.Ask()
			time.Sleep(5 * time.Second)
			if a, ok := g.Allocation(); !ok || a != first {
				t.Fatalf("over a way that loses 30 %% each way: got %+v, want still %+v", a, first)
			}
		}
	})
}

// A killed gateway comes back with the same address and port, and the server still has its
// allocation.
func TestAnAllocationFromBeforeARestartIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{Quota: 1}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		sock := newSocket(t, in.listen(edge.host, 51820))
		killed := start(t, relay.Options{Server: account, Socket: sock})
		killed.allocated(t, nil)
		in.relay.Link().SetDown(true)
		killed.stop()
		in.relay.Link().SetDown(false)
		if n := in.server.Allocations(); n != 1 {
			t.Fatalf("the server has %d allocations, want the orphan", n)
		}
		began := time.Now()
		start(t, relay.Options{Server: account, Socket: sock}).allocated(t, nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the new allocation took %v", took)
		}
		if n := in.server.Allocations(); n != 1 {
			t.Errorf("the server has %d allocations, want 1", n)
		}
	})
}

func TestWhatTheServerDeniesIsNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		deny string
		says string
	}{
		{"a private peer", "10.0.0.0/8", "does not relay to 10.1.2.3: its denied-peer-ip covers it"},
		{"its own address", "203.0.113.1/32", "does not relay to its own address 203.0.113.1, so two gateways on it cannot meet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				covered := netip.MustParsePrefix(c.deny)
				in := newInet(t, turnserver.Options{Deny: covered.Contains}, simnet.LinkOptions{})
				edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
				g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
				g.Permit([]netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::1")})
				a := g.allocated(t, nil)
				time.Sleep(time.Second)
				refused := g.Status().Denied
				for addr, why := range refused {
					switch {
					case addr == netip.MustParseAddr("2001:db8::1"):
						if !strings.Contains(why, "other IP family") {
							t.Errorf("%v: %s", addr, why)
						}
					case !covered.Contains(addr) || !strings.Contains(why, c.says):
						t.Errorf("%v is refused, since %q; want %q", addr, why, c.says)
					}
					if err := g.trySend(a.ID, "no", netip.AddrPortFrom(addr, 1)); !errors.Is(err, relay.ErrDenied) {
						t.Errorf("sending to %v: %v, want ErrDenied", addr, err)
					}
				}
				if len(refused) != 2 {
					t.Errorf("refused are %v, want two", refused)
				}
				g.send(t, a.ID, "the others go on", netip.MustParseAddrPort("192.0.2.9:9"))
			})
		})
	}
}

// A peer that is denied later must not invalidate the others' permissions, which are refreshed in
// the same request.
func TestALaterDenialLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outlaw atomic.Pointer[netip.Addr]
		in := newInet(t, turnserver.Options{Deny: func(a netip.Addr) bool {
			denied := outlaw.Load()
			return denied != nil && a == *denied
		}}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		a := g.allocated(t, nil)
		peer, at := in.peerOn("192.0.2.9")
		other, otherAt := in.peerOn("192.0.2.10")
		g.Permit([]netip.Addr{at.Addr(), otherAt.Addr()})
		synctest.Wait()
		exchange(t, func(s string) error { return g.trySend(a.ID, s, at) }, peer.others)
		exchange(t, func(s string) error { return g.trySend(a.ID, s, otherAt) }, other.others)
		addr := otherAt.Addr()
		outlaw.Store(&addr)
		time.Sleep(15 * time.Minute) // virtual
		if denied := g.Status().Denied; len(denied) != 1 || !strings.Contains(denied[addr], "does not relay to 192.0.2.10") {
			t.Errorf("denied are %v, want 192.0.2.10", denied)
		}
		if d := exchange(t, func(s string) error { return peer.WriteTo([]byte(s), a.Relayed) }, g.inbox); !strings.HasSuffix(string(d.b), ", 0") {
			t.Errorf("the first datagram from the other peer to arrive is %q: its permission had lapsed", d.b)
		}
		outlaw.Store(nil)
		eventually(t, "the permission is back", func() bool { return g.Status().Denied == nil })
	})
}

func TestWhyThereIsNoAllocationIsNamed(t *testing.T) {
	wrong, expired, mute := account, account, account
	wrong.Password = "wrong"
	expired.Username = "1600000000:edge"
	mute.Address = "203.0.113.1:9"
	for _, c := range []struct {
		name    string
		server  relay.Server
		options turnserver.Options
		fault   relay.Fault
		says    string
	}{
		{"wrong password", wrong, turnserver.Options{}, relay.FaultCredentials, `username "edge" or its password is wrong`},
		{"expired TURN REST", expired, turnserver.Options{Secret: "s"}, relay.FaultCredentials, `username "1600000000:edge" or its password`},
		{"quota", account, turnserver.Options{Quota: -1}, relay.FaultServer, `user "edge" has as many allocations as the server grants (486): raise user-quota`},
		{"another port", mute, turnserver.Options{}, relay.FaultSilent, "no answer over UDP from 203.0.113.1:9: is UDP blocked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newInet(t, c.options, simnet.LinkOptions{})
				edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
				g := start(t, relay.Options{Server: c.server, Socket: newSocket(t, in.listen(edge.host, 51820))})
				eventually(t, "a failure", func() bool { return g.Status().Err != "" })
				s := g.Status()
				if !strings.Contains(s.Err, c.says) || s.Fault != c.fault {
					t.Errorf("the status says %q (%s), want %q (%s)", s.Err, s.Fault, c.says, c.fault)
				}
				if in := time.Until(s.NextTry); in <= 0 || in > 2*time.Second {
					t.Errorf("the next try is in %v, want about a second", in)
				}
			})
		})
	}
}

// The system's error is reported without the names of the calls through which it came.
func TestFailuresAreToldWithoutCalls(t *testing.T) {
	const name = "turn.example.net:3478"
	for _, c := range []struct {
		name    string
		address string
		dial    error
		resolve error
		says    string
	}{
		{"no route", account.Address, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, nil,
			"connect to 203.0.113.1:3478: no route to host"},
		{"no such name", name, nil, &net.DNSError{Err: "no such host", Name: "turn.example.net", IsNotFound: true},
			"resolve turn.example.net: no such host: check"},
		{"a silent resolver", name, nil, fmt.Errorf("lookup turn.example.net: %w", context.DeadlineExceeded),
			"resolve turn.example.net: no answer: check"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := account
				server.Address, server.Transport = c.address, relay.TransportTCP
				g := start(t, relay.Options{Server: server,
					Dial:    func(context.Context, string, string) (net.Conn, error) { return nil, c.dial },
					Resolve: func(context.Context, string) ([]netip.Addr, error) { return nil, c.resolve }})
				eventually(t, "a failure", func() bool { return g.Status().Err != "" })
				if got := g.Status().Err; !strings.Contains(got, c.says) || strings.Contains(got, "dial tcp") {
					t.Errorf("got %q, want %q", got, c.says)
				}
			})
		})
	}
}

func TestSendingNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Delay: 50 * time.Millisecond}))
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		a := g.allocated(t, nil)
		peer, at := in.peerOn("192.0.2.9")
		g.Permit([]netip.Addr{at.Addr()})
		time.Sleep(time.Second)
		began := time.Now()
		const sent = 5000 // to an address for which the library first requests a permission
		for range sent {
			g.send(t, a.ID, "burst", at)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("%d datagrams took %v of virtual time, want none: they waited for the server", sent, took)
		}
		time.Sleep(time.Second)
		n := g.Status().Traffic
		if n.Sent+n.QueueDrops != sent || n.QueueDrops == 0 || n.Sent < 512 {
			t.Errorf("of %d datagrams %d were sent and %d dropped at the queue, want all accounted for", sent, n.Sent, n.QueueDrops)
		}
		if len(peer.others) == 0 {
			t.Error("none arrived")
		}
	})
}

// WireGuard's data waits for room in the queue, but only briefly.
func TestDataWaitsForRoomInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Delay: 50 * time.Millisecond}))
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		sock := newSocket(t, in.listen(edge.host, 51820))
		g := start(t, relay.Options{Server: account, Socket: sock})
		a := g.allocated(t, nil)
		_, at := in.peerOn("192.0.2.9")
		g.Permit([]netip.Addr{at.Addr()})
		time.Sleep(time.Second)
		const sent = 5000
		burst := func(text string) time.Duration {
			began := time.Now()
			for range sent {
				g.send(t, a.ID, text, at)
			}
			return time.Since(began)
		}
		const data = "\x04 data"
		if took := burst(data); took != 0 {
			t.Errorf("%d datagrams took %v of virtual time, want none: the socket takes them at once", sent, took)
		}
		if n := g.Status().Traffic; n.QueueDrops != 0 {
			t.Errorf("%d of %d datagrams were dropped, want none", n.QueueDrops, sent)
		}
		held := make(chan struct{})
		sock.lose(func([]byte) bool { <-held; return false })
		if took := burst(data); took == 0 || took > 10*time.Millisecond {
			t.Errorf("%d datagrams took %v while the socket took none, want 5 ms for all", sent, took)
		}
		if took := burst("else"); took != 0 {
			t.Errorf("what is no data waited for %v", took)
		}
		close(held)
		time.Sleep(time.Second)
		if took := burst(data); took != 0 {
			t.Errorf("%d datagrams took %v of virtual time after the socket was free again, want none", sent, took)
		}
	})
}

// The gateway's STUN agent may query the same server from the same socket.
func TestOtherUsersOfTheSocketGetTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		sock := newSocket(t, in.listen(edge.host, 51820))
		g := start(t, relay.Options{Server: account, Socket: sock})
		a := g.allocated(t, nil)
		tx := stunwire.NewTxID()
		if err := sock.WriteTo(stunwire.BindingRequest(tx), in.server.AddrPort()); err != nil {
			t.Fatal(err)
		}
		select {
		case d := <-sock.others:
			m, err := stunwire.Parse(d.b)
			if err != nil || m.TxID != tx || m.Mapped != a.Mapped {
				t.Errorf("got %+v (%v), want the answer to our own request", m, err)
			}
		case <-time.After(patience):
			t.Fatal("the answer to another user's request was swallowed")
		}
	})
}
