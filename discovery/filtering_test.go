package discovery_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
)

// A STUN server that offers the tests of RFC 5780, at ports 3478 and 3479 of two addresses.
const (
	behaviour1 = "192.0.2.11:3478"
	behaviour2 = "192.0.2.12:3478"
)

func (w *world) addTwoAddressServer(t *testing.T) (close func()) {
	t.Helper()
	first, second := netip.MustParseAddrPort(behaviour1), netip.MustParseAddrPort(behaviour2)
	h, err := w.net.AddHost(simnet.HostOptions{
		Name: "rfc5780", Addrs: []netip.Addr{first.Addr(), second.Addr()},
		Link: simnet.Both(simnet.Conditions{Delay: 10 * time.Millisecond}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := stunserver.ServeBehaviour(h, first, netip.AddrPortFrom(second.Addr(), 3479))
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = s.Close() }
}

func TestFilteringIsTestedWhereAServerCan(t *testing.T) {
	const ei, ad, apd, unknown = discovery.FilteringEndpointIndependent, discovery.FilteringAddress, discovery.FilteringAddressAndPort, discovery.BehaviourUnknown
	plain := []string{stun1, stun2}
	for _, c := range []struct {
		name                       string
		nat                        func() simnet.Behaviour
		servers                    []string
		mapping, filtering, strays string
		reason                     string
	}{
		{"public", nil, []string{stun1, behaviour1}, discovery.MappingNone, ei, "drops", ""},
		{"full cone", simnet.FullCone, []string{stun1, behaviour1}, ei, ei, "drops", ""},
		{"address-restricted", simnet.AddressRestricted, []string{behaviour1, stun1}, ei, ad, "drops", ""},
		{"port-restricted", simnet.PortRestricted, []string{stun1, behaviour1}, ei, apd, "drops", ""},
		{"port-restricted, one server", simnet.PortRestricted, []string{behaviour1}, ei, apd, "drops", ""},
		{"poisonable", simnet.Poisonable, []string{stun1, behaviour1}, ei, apd, "answers", ""},
		{"symmetric", simnet.Symmetric, []string{stun1, behaviour1}, discovery.MappingAddressAndPort, apd, unknown, ""},
		{"plain servers", simnet.PortRestricted, plain, ei, unknown, unknown, "OTHER-ADDRESS"},
		{"sent to the second address as well", simnet.AddressRestricted, []string{behaviour1, behaviour2}, ei, unknown, unknown, "spoken"},
		{"no servers", nil, nil, unknown, unknown, unknown, "OTHER-ADDRESS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, behaviour(c.nat), discovery.Options{STUNServers: c.servers}, func(t *testing.T, w *world) {
				defer w.addTwoAddressServer(t)()
				if err := w.agent.WaitGathered(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second) // virtual
				synctest.Wait()
				s := w.agent.Snapshot()
				if s.NAT.Mapping != c.mapping || s.NAT.Filtering != c.filtering || s.NAT.Strays != c.strays {
					t.Errorf("got mapping %s, filtering %s, strays %s (%s), want %s, %s, %s",
						s.NAT.Mapping, s.NAT.Filtering, s.NAT.Strays, s.FilteringReason, c.mapping, c.filtering, c.strays)
				}
				if (s.FilteringReason == "") != (c.reason == "") || !strings.Contains(s.FilteringReason, c.reason) {
					t.Errorf("reason: got %q, want %q in it", s.FilteringReason, c.reason)
				}
			})
		})
	}
}

func TestAChangedMappingIsTestedAnew(t *testing.T) {
	b := simnet.PortRestricted()
	b.Ports = simnet.RandomPorts
	inWorld(t, &b, discovery.Options{STUNServers: []string{stun1, behaviour1}}, func(t *testing.T, w *world) {
		defer w.addTwoAddressServer(t)()
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if s := w.agent.Snapshot(); s.NAT.Filtering != discovery.FilteringAddressAndPort {
			t.Fatalf("filtering: got %s (%s)", s.NAT.Filtering, s.FilteringReason)
		}
		w.nat.Reboot()
		tested := false
		for range 3500 {
			time.Sleep(10 * time.Millisecond) // virtual
			synctest.Wait()
			tested = tested || strings.Contains(w.agent.Snapshot().FilteringReason, "being tested")
		}
		if s := w.agent.Snapshot(); !tested || s.NAT.Filtering != discovery.FilteringAddressAndPort {
			t.Errorf("35 s after a reboot of the NAT: tested %v, filtering %s (%s)", tested, s.NAT.Filtering, s.FilteringReason)
		}
	})
}

// TestAServerCannotSendUsToForbiddenPlaces has a STUN server whose second address is one of the
// cluster's Services.
func TestAServerCannotSendUsToForbiddenPlaces(t *testing.T) {
	second := netip.MustParseAddrPort(behaviour2).Addr()
	o := discovery.Options{STUNServers: []string{behaviour1}, Exclude: []netip.Prefix{netip.PrefixFrom(second, 32)}}
	b := simnet.PortRestricted()
	inWorld(t, &b, o, func(t *testing.T, w *world) {
		defer w.addTwoAddressServer(t)()
		var sent int
		w.nat.Link().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, leaves bool) bool {
			if leaves && d.Dst.Addr() == second {
				sent++
			}
			return false
		}})
		time.Sleep(10 * time.Minute) // virtual
		synctest.Wait()
		s := w.agent.Snapshot()
		if sent != 0 || s.NAT.Filtering != discovery.BehaviourUnknown || !strings.Contains(s.FilteringReason, "to which nothing is sent") {
			t.Errorf("%d datagrams went there; filtering %s because %q", sent, s.NAT.Filtering, s.FilteringReason)
		}
	})
}
