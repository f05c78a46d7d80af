package relay_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// TestBothRestartAndMeetAgain: two gateways behind symmetric NATs, which only know each other's
// relayed address, restart at once. Each adopts its old allocation, and understands what the
// other sends on the old channels.
func TestBothRestartAndMeetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Delay: 20 * time.Millisecond}))
		var sites [2]site
		var socks [2]*socket
		var gws [2]*gateway
		var at [2]relay.Allocation
		for i := range sites {
			sites[i] = in.behind(fmt.Sprint("home", i), fmt.Sprintf("198.51.100.%d", i+1), simnet.Symmetric())
			socks[i] = newSocket(t, in.listen(sites[i].host, 51820))
			gws[i] = start(t, relay.Options{Server: account, Socket: socks[i]})
			at[i] = gws[i].allocated(t, nil)
		}
		talk := func(n int) {
			t.Helper()
			for i, g := range gws {
				for range n { // enough for a channel
					exchange(t, func(s string) error { return g.trySend(at[i].ID, s, at[1-i].Relayed) }, gws[1-i].inbox)
				}
				time.Sleep(time.Second) // virtual: until the channel is bound
				exchange(t, func(s string) error { return g.trySend(at[i].ID, s, at[1-i].Relayed) }, gws[1-i].inbox)
			}
		}
		talk(6)
		for life := range 3 {
			grants := [2]*relay.Grant{gws[0].grant(t), gws[1].grant(t)}
			gws[0].leave()
			gws[1].leave()
			if n := in.server.Allocations(); n != 2 {
				t.Fatalf("the server has %d allocations after both left, want 2", n)
			}
			began := time.Now()
			for i := range gws {
				before := at[i].Relayed
				gws[i] = start(t, relay.Options{Server: account, Socket: socks[i], Previous: grants[i]})
				if at[i] = gws[i].allocated(t, nil); at[i].Relayed != before || at[i].Mapped != grants[i].Mapped {
					t.Errorf("life %d: relayed address %v, want %v as before", life, at[i].Relayed, before)
				}
			}
			both := func(s string) error {
				if err := gws[0].trySend(at[0].ID, s, at[1].Relayed); err != nil {
					return err
				}
				return gws[1].trySend(at[1].ID, s, at[0].Relayed)
			}
			exchange(t, both, gws[1].inbox)
			exchange(t, both, gws[0].inbox)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("life %d: both hear each other after %v", life, took)
			}
			talk(6)
			time.Sleep(20 * time.Minute) // virtual: it is kept like any other
			talk(1)
		}
		for _, g := range gws {
			g.stop()
		}
		if n := in.server.Allocations(); n != 0 {
			t.Errorf("the server has %d allocations after both stopped, want none", n)
		}
	})
}

// TestWhatCannotBeAdoptedIsReplaced gives a client invalid grants.
func TestWhatCannotBeAdoptedIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(in *inet, s site, g *relay.Grant)
		within time.Duration
	}{
		{"the server has restarted", func(in *inet, _ site, _ *relay.Grant) {
			in.server.Close()
			in.serve(turnserver.Options{})
		}, 2 * time.Second},
		{"the NAT maps us otherwise", func(_ *inet, s site, _ *relay.Grant) { s.nat.Reboot() }, 2 * time.Second},
		{"another user's", func(_ *inet, _ site, g *relay.Grant) { g.Username = "other" }, time.Second},
		{"another server's", func(_ *inet, _ site, g *relay.Grant) {
			g.Address = netip.MustParseAddrPort("203.0.113.9:3478")
		}, time.Second},
		{"another allocation is at that port", func(_ *inet, _ site, g *relay.Grant) {
			g.Mapped = netip.AddrPortFrom(g.Mapped.Addr(), g.Mapped.Port()+1)
		}, 2 * time.Second},
		{"it has expired", func(_ *inet, _ site, g *relay.Grant) { g.Expires = time.Now().Add(-time.Hour) }, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
				s := in.behind("home", "198.51.100.1", simnet.Symmetric())
				sock := newSocket(t, in.listen(s.host, 51820))
				first := start(t, relay.Options{Server: account, Socket: sock})
				before := first.allocated(t, nil)
				g := *first.grant(t)
				first.leave()
				c.spoil(in, s, &g)
				began := time.Now()
				second := start(t, relay.Options{Server: account, Socket: sock, Previous: &g})
				if a := second.allocated(t, nil); a.Relayed == before.Relayed {
					t.Errorf("the relayed address is %v as before", a.Relayed)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("the allocation took %v, want at most %v", took, c.within)
				}
				synctest.Wait() // it is reported after the state has changed
				if n := second.told(); n != 1 {
					t.Errorf("%d grants were told of, want the new one", n)
				}
			})
		})
	}
}

// TestAnOutageDoesNotCostTheRelayedAddress cuts the server off for longer than the client waits:
// it adopts the allocation that the server still has.
func TestAnOutageDoesNotCostTheRelayedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		s := in.behind("home", "198.51.100.1", simnet.Symmetric())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(s.host, 51820))})
		before := g.allocated(t, nil)
		in.relay.Link().SetDown(true)
		for range 60 { // the NAT must not forget, which would be another fault
			time.Sleep(time.Second) // virtual
			g.Check()
		}
		if _, ok := g.Allocation(); ok {
			t.Fatal("the outage was not noticed")
		}
		in.relay.Link().SetDown(false)
		if a := g.allocated(t, nil); a.Relayed != before.Relayed || a.ID == before.ID {
			t.Errorf("got %v as %s, want %v under another id than %s", a.Relayed, a.ID, before.Relayed, before.ID)
		}
	})
}

func TestGrantsAreToldSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		s := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(s.host, 51820))})
		g.allocated(t, nil)
		time.Sleep(time.Hour) // virtual
		g.mu.Lock()
		n := len(g.grants)
		g.mu.Unlock()
		if n < 10 || n > 13 {
			t.Errorf("%d grants in an hour, want one every 5 minutes", n)
		}
		if left := time.Until(g.grant(t).Expires); left < 4*time.Minute || left > 10*time.Minute {
			t.Errorf("the last says that it lasts for %v", left)
		}
	})
}

// TestASlowServerKeepsTheAllocation: a server behind a satellite link first asks for credentials,
// so a refresh takes two round trips.
func TestASlowServerKeepsTheAllocation(t *testing.T) {
	for _, rtt := range []time.Duration{450, 550, 700, 900, 1200} {
		rtt *= time.Millisecond
		t.Run(rtt.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Delay: rtt / 2}))
				restartsAndKeeps(t, in, func(*socket) {})
			})
		})
	}
}

// TestASilentServerKeepsTheAllocation makes the server, or the path to it, fail at the moment of
// a request.
func TestASilentServerKeepsTheAllocation(t *testing.T) {
	for _, c := range []struct {
		name string
		// lost reports what does not arrive, for a while.
		lost    func(b []byte) bool
		forLong time.Duration
	}{
		{"all, for a moment", func([]byte) bool { return true }, 1200 * time.Millisecond},
		{"all, for two attempts", func([]byte) bool { return true }, 20 * time.Second},
		{"refreshes, for a moment", isRefresh, 2 * time.Second},
		{"refreshes, for two attempts", isRefresh, 20 * time.Second},
		{"bindings, for a moment", isBinding, 2 * time.Second},
		{"bindings, for two attempts", isBinding, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newInet(t, turnserver.Options{}, simnet.Both(simnet.Conditions{Delay: 20 * time.Millisecond}))
				restartsAndKeeps(t, in, func(s *socket) {
					until := time.Now().Add(c.forLong)
					s.lose(func(b []byte) bool { return time.Now().Before(until) && c.lost(b) })
				})
			})
		})
	}
}

// The types of STUN's Binding and TURN's Refresh requests (RFC 8489 §5, RFC 8656 §17).
func isBinding(b []byte) bool { return b[0] == 0 && b[1] == 0x01 }
func isRefresh(b []byte) bool { return b[0] == 0 && b[1] == 0x04 }

// restartsAndKeeps restarts a gateway while its socket is disturbed, and checks that it keeps the
// same allocation.
func restartsAndKeeps(t *testing.T, in *inet, disturb func(*socket)) {
	t.Helper()
	s := in.behind("home", "198.51.100.1", simnet.Symmetric())
	sock := newSocket(t, in.listen(s.host, 51820))
	first := start(t, relay.Options{Server: account, Socket: sock})
	before := first.allocated(t, nil)
	g := first.grant(t)
	first.leave()
	disturb(sock)
	second := start(t, relay.Options{Server: account, Socket: sock, Previous: g})
	if after := second.allocated(t, nil); after.Relayed != before.Relayed {
		t.Errorf("the relayed address is %v, want %v as before", after.Relayed, before.Relayed)
	}
	time.Sleep(10 * time.Minute) // virtual: it is kept like any other
	if after, ok := second.Allocation(); !ok || after.Relayed != before.Relayed {
		t.Errorf("10 minutes later the allocation is %v, want that on %v", after, before.Relayed)
	}
	second.stop()
	if n := in.server.Allocations(); n != 0 {
		t.Errorf("the server has %d allocations in the end, want none", n)
	}
}
