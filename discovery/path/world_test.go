package path_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is two gateways on a simulated internet in virtual time, with two servers that return a
// sender's address and relay for it.
type world struct {
	t       *testing.T
	seed    uint64
	dice    *rand.Rand
	net     *simnet.Internet
	servers []*relayServer
	running sync.WaitGroup
	mail    mailbox
	traced  bool
}

const (
	port       = 51820
	serverPort = 3478
)

var serverAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}

// inWorld runs f in virtual time and ends everything that the world started.
func inWorld(t *testing.T, seed uint64, trace int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, seed: seed, dice: rand.New(rand.NewPCG(seed, 7)),
			net:    simnet.New(simnet.Options{Seed: seed, Trace: trace}),
			traced: trace > 0,
		}
		w.mail.letters = make(map[uint64]*letter)
		defer func() { // even if f ends the test
			if t.Failed() && trace > 0 {
				var b strings.Builder
				_ = w.net.WriteTrace(&b)
				t.Log("trace:\n" + b.String())
			}
			w.net.Close()
			w.running.Wait()
		}()
		for i, a := range serverAddrs {
			w.servers = append(w.servers, w.relayServer(fmt.Sprintf("server%d", i+1), a))
		}
		f(w)
	})
}

// kind is a kind of location of a gateway: a row of the conformance table.
type kind struct {
	name      string
	nat       func() simnet.Behaviour // nil = a public address
	mapping   string
	filtering string
	strays    string
}

var kinds = [...]kind{
	{"DIAL", nil, "none", "unknown", ""},
	{"full cone", simnet.FullCone, "endpoint-independent", "endpoint-independent", path.StraysDropped},
	{"address-restricted", simnet.AddressRestricted, "endpoint-independent", "address-dependent", path.StraysDropped},
	{"port-restricted", simnet.Conntrack, "endpoint-independent", "address-and-port-dependent", path.StraysDropped},
	{"answers strays", simnet.Poisonable, "endpoint-independent", "address-and-port-dependent", path.StraysAnswered},
	{"symmetric", simnet.Symmetric, "endpoint-dependent", "address-and-port-dependent", path.StraysDropped},
}

// site is a gateway's location and what is known there.
type site struct {
	kind
	blind   bool // the NAT's filtering and reaction to strays are unknown
	relay   bool
	host    netip.Addr
	wan     netip.Addr
	link    simnet.Conditions // each way between the NAT, or the host, and the internet
	tune    func(*simnet.Behaviour)
	within  *simnet.Network // instead of its own NAT
	stable  bool            // announces its host address as advertised
	noProbe bool            // an older gateway
	overlay int             // the tunnel's MTU in bytes; 0 = the usual one
}

func siteOf(k kind, side int) site {
	s := site{kind: k, relay: true, link: simnet.Conditions{Delay: 10 * time.Millisecond}}
	s.host = netip.AddrFrom4([4]byte{10, byte(side), 0, 2})
	s.wan = netip.AddrFrom4([4]byte{203, 0, 113, byte(side)})
	if k.nat == nil {
		s.host = s.wan
	}
	return s
}

// onIPv6 gives a public site only an IPv6 address, which the servers cannot reach.
func (s *site) onIPv6(side int) {
	s.host = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(side)})
	s.wan, s.relay = s.host, false
}

// gateway adds a gateway to the world.
func (w *world) gateway(name string, s site, low bool) *gateway {
	w.t.Helper()
	g := &gateway{
		w: w, name: name, site: s, low: low, wake: make(chan struct{}, 1), done: make(chan struct{}),
		vias: make(map[string]*viaRelay), announced: make(map[netip.AddrPort]string),
	}
	o := simnet.HostOptions{Name: name, Network: s.within, Addrs: []netip.Addr{s.host}}
	if s.nat == nil {
		o.Link = simnet.Both(s.link)
	} else if s.within == nil {
		b := s.nat()
		if s.tune != nil {
			s.tune(&b)
		}
		var err error
		g.nat, err = w.net.AddNAT(simnet.NATOptions{
			Name: name + "-nat", Addrs: []netip.Addr{s.wan}, Behaviour: b, Link: simnet.Both(s.link),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		o.Network = g.nat.Inside()
	}
	var err error
	if g.host, err = w.net.AddHost(o); err != nil {
		w.t.Fatal(err)
	}
	if g.conn, err = g.host.ListenUDP(port); err != nil {
		w.t.Fatal(err)
	}
	g.boot, g.seen = 1, s.host.Is6()
	g.newMachine()
	w.running.Go(g.read)
	w.running.Go(g.run)
	w.running.Go(g.gather)
	return g
}

// uplink is the gateway's link to the internet.
func (g *gateway) uplink() *simnet.Link {
	if g.nat != nil {
		return g.nat.Link()
	}
	return g.host.Link()
}

// meet makes a and b each other's peer. a is the inviter: b has a's candidates from a ticket, and
// a has none of b's.
func (w *world) meet(a, b *gateway) {
	a.peer, b.peer = b, a // only this goroutine reads them
	w.until(time.Minute, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		return a.gathered() && b.gathered()
	})
	ticket := a.ticket()
	for _, g := range []*gateway{a, b} {
		g.mu.Lock()
		if g == b {
			g.m.SetRemote(time.Now(), ticket, false)
		}
		g.ready, g.began = true, time.Now()
		g.mu.Unlock()
		g.kick()
	}
}

// until waits until cond holds and returns how long that took; it gives up after limit.
func (w *world) until(limit time.Duration, cond func() bool) (time.Duration, bool) {
	began := time.Now()
	for time.Since(began) < limit {
		if cond() {
			return time.Since(began), true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return limit, cond()
}

// bothAre reports whether both gateways use a path of the kind and have a session.
func bothAre(kind string, gs ...*gateway) func() bool {
	return func() bool {
		for _, g := range gs {
			if g.kind() != kind {
				return false
			}
		}
		return true
	}
}

// kind returns the kind of the path in use, none without a session. It costs less than a
// snapshot.
func (g *gateway) kind() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch s := g.routing.Selected; {
	case !s.IsValid() || g.session.IsZero():
		return path.KindNone
	case s.Via != "" || s.Remote.Addr() == serverAddrs[0]:
		return path.KindRelay
	}
	return path.KindDirect
}

// explain describes what the gateways know, for a test that fails.
func explain(gs ...*gateway) string {
	var b strings.Builder
	for _, g := range gs {
		s, connected := g.status()
		fmt.Fprintf(&b, "%s (%s): %s %v, connected %v: %s; next try %v\n", g.name, g.site.name, s.Kind, s.Selected, connected, s.Reason, time.Until(s.NextTry))
		for _, c := range s.Candidates {
			fmt.Fprintf(&b, "    %-40v %-10s %-8v %6v  %s\n", c.Path, c.Source, c.State, c.RTT, c.Reason)
		}
		for _, n := range s.History {
			fmt.Fprintf(&b, "    %8.3f %s: %s\n", n.At.Sub(g.began).Seconds(), n.Event, n.Reason)
		}
	}
	return b.String()
}
