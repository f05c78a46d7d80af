package behaviour_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery/behaviour"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	server  = netip.MustParseAddrPort("192.0.2.1:3478")
	other   = netip.MustParseAddrPort("192.0.2.2:3479")
	natAddr = netip.MustParseAddr("198.51.100.7")
)

// serve starts a STUN server with two addresses and two ports.
func serve(t *testing.T, in *simnet.Internet) *stunserver.BehaviourServer {
	t.Helper()
	h, err := in.AddHost(simnet.HostOptions{Name: "stun", Addrs: []netip.Addr{server.Addr(), other.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := stunserver.ServeBehaviour(h, server, other)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drive runs a test over a socket until it is finished.
func drive(t *testing.T, conn *simnet.Conn, test *behaviour.Test) {
	t.Helper()
	buf := make([]byte, stunwire.MaxSize)
	for {
		send, next := test.Poll(time.Now())
		for _, d := range send {
			if _, err := conn.WriteToUDPAddrPort(d.Packet, d.To); err != nil {
				t.Fatal(err)
			}
		}
		if next.IsZero() {
			return
		}
		if err := conn.SetReadDeadline(next); err != nil {
			t.Fatal(err)
		}
		if n, from, err := conn.ReadFromUDPAddrPort(buf); err == nil {
			test.Handle(time.Now(), buf[:n], from)
		}
	}
}

func nat(m, f simnet.Dependence, p simnet.PortAllocation) *simnet.Behaviour {
	return &simnet.Behaviour{Mapping: m, Filtering: f, Ports: p}
}

func TestSimulatedNATs(t *testing.T) {
	const ei, ad, apd = behaviour.EndpointIndependent, behaviour.AddressDependent, behaviour.AddressAndPortDependent
	of := func(b simnet.Behaviour) *simnet.Behaviour { return &b }
	for _, c := range []struct {
		name               string
		nat                *simnet.Behaviour // nil = none
		firewall           simnet.Firewall   // without a NAT
		mapping, filtering string
		strays             behaviour.Strays
	}{
		{"no NAT", nil, simnet.Firewall{}, ei, ei, behaviour.StraysIgnored},
		{"stateful firewall", nil, simnet.Firewall{Stateful: true}, ei, apd, behaviour.StraysIgnored},
		{"full cone", of(simnet.FullCone()), simnet.Firewall{}, ei, ei, behaviour.StraysIgnored},
		{"address-restricted", of(simnet.AddressRestricted()), simnet.Firewall{}, ei, ad, behaviour.StraysIgnored},
		{"port-restricted", of(simnet.PortRestricted()), simnet.Firewall{}, ei, apd, behaviour.StraysIgnored},
		{"conntrack", of(simnet.Conntrack()), simnet.Firewall{}, ei, apd, behaviour.StraysIgnored},
		{"conntrack that answers strays", of(simnet.Poisonable()), simnet.Firewall{}, ei, apd, behaviour.StraysKept},
		{"symmetric", of(simnet.Symmetric()), simnet.Firewall{}, apd, apd, behaviour.StraysUnknown},
		{"address-dependent both", nat(simnet.AddressDependent, simnet.AddressDependent, simnet.RandomPorts), simnet.Firewall{}, ad, ad, behaviour.StraysUnknown},
		{"address-dependent mapping, all let in", nat(simnet.AddressDependent, simnet.EndpointIndependent, simnet.RandomPorts), simnet.Firewall{}, ad, ei, behaviour.StraysUnknown},
		{"symmetric that filters by address", nat(simnet.AddressAndPortDependent, simnet.AddressDependent, simnet.SequentialPorts), simnet.Firewall{}, apd, ad, behaviour.StraysUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := simnet.New(simnet.Options{Seed: 1})
				defer in.Close()
				s := serve(t, in)
				defer s.Close()
				conn := gatewaySocket(t, in, c.nat, c.firewall)
				test := behaviour.New(server)
				drive(t, conn, test)
				m, f, done, reason := test.Result()
				if m != c.mapping || f != c.filtering || test.Strays() != c.strays || !done || reason != "" {
					t.Errorf("mapping %s, filtering %s, strays %s, done %v, reason %q; want %s, %s, %s", m, f, test.Strays(), done, reason, c.mapping, c.filtering, c.strays)
					trace := new(strings.Builder)
					if err := in.WriteTrace(trace); err == nil {
						t.Log(trace)
					}
				}
			})
		})
	}
}

// gatewaySocket is a gateway's socket behind a NAT, or with a firewall on the internet.
func gatewaySocket(t *testing.T, in *simnet.Internet, b *simnet.Behaviour, f simnet.Firewall) *simnet.Conn {
	t.Helper()
	lossy := simnet.Both(simnet.Conditions{Delay: 15 * time.Millisecond, Loss: 0.02})
	o := simnet.HostOptions{Name: "gateway", Addrs: []netip.Addr{natAddr}, Link: lossy}
	o.Link.Firewall = f
	if b != nil {
		n, err := in.AddNAT(simnet.NATOptions{Name: "nat", Addrs: []netip.Addr{natAddr}, Behaviour: *b, Link: lossy})
		if err != nil {
			t.Fatal(err)
		}
		o = simnet.HostOptions{Name: "gateway", Network: n.Inside(), Addrs: []netip.Addr{netip.MustParseAddr("192.168.1.2")}}
	}
	h, err := in.AddHost(o)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := h.ListenUDP(51820)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A second test within the NAT's memory would take an address-restricted NAT for one that lets
// everybody in, if it did not know of the first.
func TestAnEarlierTestIsAllowedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := simnet.New(simnet.Options{Seed: 1})
		defer in.Close()
		s := serve(t, in)
		defer s.Close()
		restricted := simnet.AddressRestricted()
		conn := gatewaySocket(t, in, &restricted, simnet.Firewall{})
		first, untold, told := behaviour.New(server), behaviour.New(server), behaviour.New(server)
		drive(t, conn, first)
		told.Spoken(first.Destinations()...)
		drive(t, conn, untold)
		if _, f, _, _ := untold.Result(); f != behaviour.EndpointIndependent {
			t.Fatalf("filtering is %s although the NAT remembers the first test: this test shows nothing", f)
		}
		drive(t, conn, told)
		if m, f, _, reason := told.Result(); m != behaviour.EndpointIndependent || f != behaviour.Unknown || !strings.Contains(reason, "spoken to") {
			t.Errorf("mapping %s, filtering %s, reason %q; want unknown filtering", m, f, reason)
		}
	})
}
