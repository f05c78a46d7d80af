package portmap_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/portmap/faketest"
)

func TestEachProtocolMapsAndWithdraws(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     faketest.Options
		by    portmap.Protocol
		after time.Duration
	}{
		{"PCP", faketest.Options{PCP: true, NATPMP: true, UPnP: true}, portmap.PCP, 0},
		{"NAT-PMP", faketest.Options{NATPMP: true, UPnP: true}, portmap.NATPMP, 0},
		{"PCP alone of a newer version's server", faketest.Options{PCP: true}, portmap.PCP, 0},
		{"UPnP IGD 2", faketest.Options{UPnP: true}, portmap.UPnP, time.Second},
		{"UPnP IGD 1", faketest.Options{UPnP: true, IGD: 1}, portmap.UPnP, time.Second},
		{"UPnP, port 5351 is silent", faketest.Options{UPnP: true, Silent: true}, portmap.UPnP, 15 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.o, faketest.Lies{}, func(w *world) {
				s := w.after(c.after)
				w.want(s, portmap.StateMapped, c.by, "")
				if got, ok := s.Candidate(); !ok || got != mapped {
					t.Errorf("candidate: got %v %v, want %v", got, ok, mapped)
				}
				if want := netip.AddrPortFrom(clientAddr, port); s.Internal != want || s.Router != routerAddr || s.Lifetime != time.Hour {
					t.Errorf("got %+v, want internal %v at %v for 1 h", s, want, routerAddr)
				}
				if !w.mapper.Settled() {
					t.Error("not settled")
				}
				if m := w.router.Mappings(); len(m) != 1 || m[0].Internal != port {
					t.Errorf("the router has %+v, want one mapping", m)
				}
				before := time.Now()
				w.stop()
				if m := w.router.Mappings(); len(m) != 0 {
					t.Errorf("after the end the router has %+v, want none", m)
				}
				if took := time.Since(before); took > time.Second {
					t.Errorf("the end took %v", took)
				}
			})
		})
	}
}

func TestASecondRunIsRefused(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{}, func(w *world) {
		w.stop()
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		if err := w.mapper.Run(ctx); !errors.Is(err, portmap.ErrRunning) {
			t.Errorf("got %v, want %v", err, portmap.ErrRunning)
		}
	})
}

func TestTheEndDoesNotWaitForADeadRouter(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{}, func(w *world) {
		w.want(w.after(time.Second), portmap.StateMapped, portmap.PCP, "")
		w.router.Change(func(o *faketest.Options) { o.Silent = true })
		before := time.Now()
		w.stop()
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("the end took %v, want at most 2 s", took)
		}
	})
}

func TestAMappingIsRenewedAtHalfItsLife(t *testing.T) {
	for _, o := range []faketest.Options{{PCP: true}, {NATPMP: true}, {UPnP: true}} {
		inWorld(t, o, faketest.Lies{}, func(w *world) {
			first := w.after(time.Second)
			was := w.router.Mappings()[0]
			for range 10 * 60 {
				if s := w.after(time.Minute); s.State != portmap.StateMapped || !s.Made.Equal(first.Made) {
					t.Fatalf("after %v: %+v, want the mapping of the start", time.Since(w.began), s)
				}
				if m := w.router.Mappings(); len(m) != 1 || m[0].Nonce != was.Nonce {
					t.Fatalf("after %v the router has %+v, want one with the nonce of the start", time.Since(w.began), m)
				}
			}
			asked := w.router.Requests("PCP MAP") + w.router.Requests("NAT-PMP map") + w.router.Requests("AddPortMapping")
			if asked < 10*60/38 || asked > 1+10*60/30 { // each 30 to 37.5 min
				t.Errorf("%s: asked for the mapping %d times in 10 h, want one each 30 to 37.5 min", first.Protocol, asked)
			}
		})
	}
}

func TestARouterThatForgotIsAskedAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		o    faketest.Options
		do   func(*faketest.Router)
		in   time.Duration
	}{
		{"PCP, restart", faketest.Options{PCP: true}, (*faketest.Router).Restart, 31 * time.Second},
		{"NAT-PMP, restart", faketest.Options{NATPMP: true}, (*faketest.Router).Restart, 31 * time.Second},
		{"UPnP, restart", faketest.Options{UPnP: true}, (*faketest.Router).Restart, 32 * time.Second},
		{"PCP, forgets in silence", faketest.Options{PCP: true}, (*faketest.Router).Forget, 38 * time.Minute},
		{"NAT-PMP, forgets in silence", faketest.Options{NATPMP: true}, (*faketest.Router).Forget, 38 * time.Minute},
		{"NAT-PMP, another address", faketest.Options{NATPMP: true}, func(r *faketest.Router) {
			r.Forget()
			r.Change(func(o *faketest.Options) { o.External = netip.MustParseAddr("203.0.113.21") })
		}, 31 * time.Second},
		{"UPnP, another address", faketest.Options{UPnP: true}, func(r *faketest.Router) {
			r.Change(func(o *faketest.Options) { o.External = netip.MustParseAddr("203.0.113.21") })
		}, 32 * time.Second},
		{"PCP, speaks only UPnP now", faketest.Options{PCP: true}, func(r *faketest.Router) {
			r.Restart()
			r.Change(func(o *faketest.Options) { o.PCP, o.UPnP = false, true })
		}, 38 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.o, faketest.Lies{}, func(w *world) {
				w.after(2 * time.Minute)
				c.do(w.router)
				s := w.after(c.in)
				if m := w.router.Mappings(); len(m) != 1 || s.State != portmap.StateMapped {
					t.Errorf("%v later: %+v, the router has %+v; want a mapping", c.in, s, m)
				}
				if got, _ := s.Candidate(); got.Addr() != external && got.Addr() != netip.MustParseAddr("203.0.113.21") {
					t.Errorf("candidate %v", got)
				}
			})
		})
	}
}

func TestANewNetworkMeansANewMapping(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{}, func(w *world) {
		w.after(time.Second)
		w.mu.Lock()
		w.at = netip.Addr{}
		w.mu.Unlock()
		w.mapper.NetworkChanged()
		w.want(w.after(0), portmap.StateWaiting, "", "no default route")
		w.mu.Lock()
		w.at = routerAddr
		w.mu.Unlock()
		w.mapper.NetworkChanged()
		w.want(w.after(0), portmap.StateMapped, portmap.PCP, "")
		w.mu.Lock()
		w.port = 40000
		w.mu.Unlock()
		w.want(w.after(31*time.Second), portmap.StateMapped, portmap.PCP, "")
		if s := w.mapper.Status(); s.Internal.Port() != 40000 {
			t.Errorf("after the port changed: %+v", s)
		}
	})
}

func TestWhyThereIsNoMappingIsSaid(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     faketest.Options
		lies  faketest.Lies
		in    time.Duration
		state portmap.State
		fault portmap.Fault
		words []string
	}{
		{"nobody answers", faketest.Options{Silent: true}, faketest.Lies{}, 20 * time.Second, portmap.StateFailed, portmap.FaultUnreachable,
			[]string{"PCP: no answer", "NAT-PMP: no answer", "UPnP: no answer"}},
		{"port closed", faketest.Options{}, faketest.Lies{}, 4 * time.Second, portmap.StateFailed, portmap.FaultUnreachable,
			[]string{"port 5351 of the router is closed", "UPnP: no answer"}},
		{"refused", faketest.Options{PCP: true, NATPMP: true, UPnP: true}, faketest.Lies{Result: 2, SOAPError: []int{606}}, 4 * time.Second,
			portmap.StateFailed, portmap.FaultRefused, []string{"PCP: not authorized", "NAT-PMP: not authorized", "UPnP: AddPortMapping: error 606, not authorized"}},
		{"no room", faketest.Options{PCP: true, NATPMP: true}, faketest.Lies{Result: 8}, 4 * time.Second,
			portmap.StateFailed, portmap.FaultRefused, []string{"PCP: it has no room", "NAT-PMP: result 8"}},
		{"a NAT before the router", faketest.Options{PCP: true, NATPMP: true, UPnP: true, Seen: netip.MustParseAddr("192.168.7.9")}, faketest.Lies{},
			4 * time.Second, portmap.StateFailed, portmap.FaultRefused, []string{"ADDRESS_MISMATCH", "a NAT between this gateway and the router"}},
		{"carrier-grade NAT", faketest.Options{PCP: true, External: netip.MustParseAddr("100.64.3.4")}, faketest.Lies{}, 0,
			portmap.StateUseless, portmap.FaultBehindNAT, []string{"the router's own address 100.64.3.4 is private: there is another NAT before it"}},
		{"private", faketest.Options{UPnP: true, External: netip.MustParseAddr("10.1.2.3")}, faketest.Lies{}, time.Second,
			portmap.StateUseless, portmap.FaultBehindNAT, []string{"the router's own address 10.1.2.3 is private"}},
		{"not connected", faketest.Options{PCP: true, NATPMP: true, UPnP: true, External: netip.IPv4Unspecified()}, faketest.Lies{}, 4 * time.Second,
			portmap.StateFailed, portmap.FaultImpossible, []string{"PCP: the router says that the mapping is at 0.0.0.0:51820, where nothing can be"}},
		{"lies about its address", faketest.Options{PCP: true, External: netip.MustParseAddr("127.0.0.1")}, faketest.Lies{}, 4 * time.Second,
			portmap.StateFailed, portmap.FaultImpossible, []string{"at 127.0.0.1:51820, where nothing can be"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.o, c.lies, func(w *world) {
				s := w.after(c.in)
				if s.State != c.state {
					t.Errorf("state %s (%s), want %s", s.State, s.Err, c.state)
				}
				if s.Fault != c.fault {
					t.Errorf("fault %q, want %q", s.Fault, c.fault)
				}
				for _, word := range c.words {
					if !strings.Contains(s.Err, word) {
						t.Errorf("reason %q, want %q in it", s.Err, word)
					}
				}
				if _, ok := s.Candidate(); ok || !w.mapper.Settled() {
					t.Errorf("candidate %v, settled %v; want no candidate, and settled", ok, w.mapper.Settled())
				}
				if c.o.Seen.IsValid() && w.router.Requests("NAT-PMP map")+w.router.Requests("HTTP") > 0 {
					t.Error("the other protocols were asked, which would map a port of the NAT in between")
				}
			})
		})
	}
}

func TestAFailingRouterIsNotAskedTooOften(t *testing.T) {
	inWorld(t, faketest.Options{Silent: true}, faketest.Lies{}, func(w *world) {
		w.after(24 * time.Hour)
		// A round has 6 datagrams to port 5351 and 8 or 16 searches.
		if n := w.router.Requests("silent"); n > 6*(24*60/15+6) {
			t.Errorf("%d datagrams in a day", n)
		}
		w.router.Change(func(o *faketest.Options) { o.Silent, o.PCP = false, true })
		w.want(w.after(16*time.Minute), portmap.StateMapped, portmap.PCP, "")
	})
}

func TestARefusedRenewalEndsInExpiry(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{}, func(w *world) {
		w.want(w.after(time.Second), portmap.StateMapped, portmap.PCP, "")
		w.router.Lie(faketest.Lies{Result: 8})
		w.want(w.after(50*time.Minute), portmap.StateMapped, portmap.PCP, "no room")
		w.want(w.after(11*time.Minute), portmap.StateFailed, "", "PCP: it has no room")
		w.router.Lie(faketest.Lies{})
		w.want(w.after(16*time.Minute), portmap.StateMapped, portmap.PCP, "")
	})
}

func TestAShortLeaseIsNotAskedForWithoutPause(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{Lifetime: 1}, func(w *world) {
		w.after(time.Minute)
		if n := w.router.Requests("PCP MAP"); n > 70 {
			t.Errorf("asked %d times in a minute", n)
		}
	})
}

func TestAKilledGatewayTakesItsMappingUpAgain(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true, NATPMP: true}, faketest.Lies{}, func(w *world) {
		w.after(time.Second)
		was := w.router.Mappings()[0]
		w.router.Change(func(o *faketest.Options) { o.Silent = true }) // it is not deleted
		w.stop()
		w.router.Change(func(o *faketest.Options) { o.Silent = false })
		w.start()
		w.want(w.after(time.Second), portmap.StateMapped, portmap.PCP, "")
		if m := w.router.Mappings(); len(m) != 1 || m[0].Nonce != was.Nonce {
			t.Errorf("the router has %+v, want %+v", m, was)
		}
		w.router.Change(func(o *faketest.Options) { o.Silent = true })
		w.stop()
		w.router.Change(func(o *faketest.Options) { o.Silent = false })
		w.options.Secret = []byte("another gateway's")
		w.start()
		w.want(w.after(time.Second), portmap.StateMapped, portmap.NATPMP, "") // PCP refuses another nonce
	})
}

func TestWhatSTUNServersSeeDecides(t *testing.T) {
	other := netip.MustParseAddrPort("198.51.100.9:51820")
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{}, func(w *world) {
		w.want(w.after(time.Second), portmap.StateMapped, portmap.PCP, "")
		first := w.mapper.Status()
		see := func(public netip.AddrPort, in portmap.Inbound) portmap.Status {
			w.mapper.Observe(portmap.Observation{Public: []netip.AddrPort{public}, Inbound: in, Tested: w.mapper.Status().Made})
			return w.after(0)
		}
		proof := func(s portmap.Status, want portmap.Proof) {
			t.Helper()
			if w.want(s, portmap.StateMapped, portmap.PCP, ""); s.Proof != want {
				t.Errorf("proof %q, want %q", s.Proof, want)
			}
		}
		proof(first, portmap.ProofNone)
		proof(see(netip.AddrPortFrom(external, 7), portmap.InboundShut), portmap.ProofAddress)
		proof(see(mapped, portmap.InboundUnknown), portmap.ProofSTUN)
		proof(see(mapped, portmap.InboundOpen), portmap.ProofInbound)

		// A dead mapping that is listed is deleted and recreated, once.
		w.after(time.Second)
		s := see(mapped, portmap.InboundShut)
		if s.Made.Equal(first.Made) {
			t.Error("a dead mapping was not recreated")
		}
		// The test was of the old mapping, so the new one is a candidate, but in doubt.
		w.want(s, portmap.StateMapped, portmap.PCP, "nothing from outside comes through")
		if _, ok := s.Candidate(); !ok || s.Proof != portmap.ProofSTUN || s.Fault != portmap.FaultStale {
			t.Errorf("got %+v, want a candidate in doubt", s)
		}
		w.after(time.Second)
		w.want(see(mapped, portmap.InboundShut), portmap.StateUseless, portmap.PCP, "nothing from outside comes through")
		if f := w.mapper.Status().Fault; f != portmap.FaultStale {
			t.Errorf("fault %q, want %q", f, portmap.FaultStale)
		}
		if m := w.router.Mappings(); len(m) != 1 {
			t.Errorf("the router has %+v, want one mapping", m)
		}
		// A public address other than the router's.
		w.want(see(other, portmap.InboundUnknown), portmap.StateUseless, portmap.PCP, "STUN servers see this gateway at 198.51.100.9")
		if f := w.mapper.Status().Fault; f != portmap.FaultContradicted {
			t.Errorf("fault %q, want %q", f, portmap.FaultContradicted)
		}
		proof(see(mapped, portmap.InboundOpen), portmap.ProofInbound)
	})
}

func TestUPnPQuirks(t *testing.T) {
	for _, c := range []struct {
		name string
		o    faketest.Lies
		same bool // the external port is the internal one
	}{
		{"the port is another host's", faketest.Lies{SOAPError: []int{718}}, false},
		{"the port is in use", faketest.Lies{SOAPError: []int{729}}, false},
		{"permanent leases only", faketest.Lies{SOAPError: []int{725}}, true},
		{"conflict, then permanent leases only", faketest.Lies{SOAPError: []int{718, 725}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, faketest.Options{UPnP: true}, c.o, func(w *world) {
				s := w.after(time.Second)
				w.want(s, portmap.StateMapped, portmap.UPnP, "")
				if got, _ := s.Candidate(); (got.Port() == port) != c.same || got.Addr() != external {
					t.Errorf("candidate %v", got)
				}
				w.want(w.after(2*time.Hour), portmap.StateMapped, portmap.UPnP, "")
				w.stop()
				if slices.ContainsFunc(w.router.Mappings(), func(m faketest.Mapping) bool { return m.Client == clientAddr }) {
					t.Errorf("after the end the router has %+v", w.router.Mappings())
				}
			})
		})
	}
}

func TestAConfiguredRouterIsSearchedWithoutMulticast(t *testing.T) {
	inWorld(t, faketest.Options{UPnP: true}, faketest.Lies{}, func(w *world) {
		w.after(time.Second)
		if !slices.Contains(w.router.Searched(), "239.255.255.250:1900") {
			t.Errorf("the default router was searched at %v, want the group as well", w.router.Searched())
		}
		w.stop()
		before := len(w.router.Searched())
		w.options.Router = routerAddr
		w.start()
		w.want(w.after(time.Second), portmap.StateMapped, portmap.UPnP, "")
		for _, to := range w.router.Searched()[before:] {
			if to != "192.168.7.1:1900" {
				t.Errorf("the configured router was searched at %s", to)
			}
		}
	})
}

func TestRefreshWaitsForTheAnswer(t *testing.T) {
	inWorld(t, faketest.Options{PCP: true}, faketest.Lies{}, func(w *world) {
		w.after(time.Minute)
		w.router.Restart()
		w.mapper.Refresh(w.t.Context())
		synctest.Wait()
		if m := w.router.Mappings(); len(m) != 1 {
			t.Errorf("after a refresh the router has %+v, want the mapping again", m)
		}
	})
}
