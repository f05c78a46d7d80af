package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a gateway's host, perhaps behind a NAT, and two STUN servers 10 ms away.
type world struct {
	net     *simnet.Internet
	nat     *simnet.NAT
	host    *simnet.Host
	servers []*stunserver.Server
	agent   *discovery.Agent
}

const (
	stun1 = "192.0.2.1:3478"
	stun2 = "192.0.2.2:3478"
)

// inWorld runs f in virtual time with a running agent.
func inWorld(t *testing.T, b *simnet.Behaviour, o discovery.Options, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{net: simnet.New(simnet.Options{Seed: 1})}
		defer w.net.Close()
		w.addServers(t)
		w.addHost(t, b)
		conn, err := w.host.ListenUDP(51820)
		if err != nil {
			t.Fatal(err)
		}
		o.Send = func(p []byte, to netip.AddrPort) error {
			_, err := conn.WriteToUDPAddrPort(p, to)
			return err
		}
		o.Port = func() uint16 { return 51820 }
		o.HostAddrs = func() ([]netip.Addr, error) { return w.host.Addrs(), nil }
		if w.agent, err = discovery.New(o); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.agent.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Run: got %v, want context.Canceled", err)
			}
		})
		running.Go(func() { receive(conn, w.agent) })
		f(t, w)
		cancel()
		_ = conn.Close()
		running.Wait()
		for _, s := range w.servers {
			_ = s.Close()
		}
	})
}

func receive(conn *simnet.Conn, agent *discovery.Agent) {
	buf := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		agent.HandleSTUN(buf[:n], peer.Direct(from))
	}
}

func (w *world) addServers(t *testing.T) {
	t.Helper()
	for i, text := range []string{stun1, stun2} {
		at := netip.MustParseAddrPort(text)
		h, err := w.net.AddHost(simnet.HostOptions{
			Name: fmt.Sprintf("stun%d", i+1), Addrs: []netip.Addr{at.Addr()},
			Link: simnet.Both(simnet.Conditions{Delay: 10 * time.Millisecond}),
		})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := h.ListenUDP(at.Port())
		if err != nil {
			t.Fatal(err)
		}
		w.servers = append(w.servers, stunserver.Serve(conn))
	}
}

func (w *world) addHost(t *testing.T, b *simnet.Behaviour) {
	t.Helper()
	o := simnet.HostOptions{Name: "gateway", Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.5")}}
	var err error
	if b != nil {
		w.nat, err = w.net.AddNAT(simnet.NATOptions{
			Name: "nat", Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}, Behaviour: *b,
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Network, o.Addrs = w.nat.Inside(), []netip.Addr{netip.MustParseAddr("192.168.1.5")}
	}
	if w.host, err = w.net.AddHost(o); err != nil {
		t.Fatal(err)
	}
}

func addrsOf(cs []discovery.Candidate, source string) []string {
	var out []string
	for _, c := range cs {
		if c.Source == source {
			out = append(out, c.Addr.String())
		}
	}
	return out
}

func TestTheNATIsToldApart(t *testing.T) {
	for _, c := range []struct {
		name      string
		behaviour func() simnet.Behaviour
		mapping   string
		host      string
		stun      int // server-reflexive candidates
	}{
		{"public", nil, discovery.MappingNone, "203.0.113.5:51820", 0},
		{"full cone", simnet.FullCone, discovery.MappingEndpointIndependent, "192.168.1.5:51820", 1},
		{"address-restricted", simnet.AddressRestricted, discovery.MappingEndpointIndependent, "192.168.1.5:51820", 1},
		{"port-restricted", simnet.PortRestricted, discovery.MappingEndpointIndependent, "192.168.1.5:51820", 1},
		{"conntrack", simnet.Conntrack, discovery.MappingEndpointIndependent, "192.168.1.5:51820", 1},
		{"symmetric", simnet.Symmetric, discovery.MappingEndpointDependent, "192.168.1.5:51820", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b *simnet.Behaviour
			if c.behaviour != nil {
				x := c.behaviour()
				b = &x
			}
			inWorld(t, b, discovery.Options{STUNServers: []string{stun1, stun2, stun1}}, func(t *testing.T, w *world) {
				began := time.Now()
				if err := w.agent.WaitGathered(t.Context()); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d != 20*time.Millisecond {
					t.Errorf("gathering took %v, want one round trip of 20ms", d)
				}
				if got := w.agent.NAT().Mapping; got != c.mapping {
					t.Errorf("mapping: got %s, want %s", got, c.mapping)
				}
				cs := w.agent.Candidates()
				if got := addrsOf(cs, discovery.SourceHost); !slices.Equal(got, []string{c.host}) {
					t.Errorf("host candidates: got %v, want %s", got, c.host)
				}
				if got := addrsOf(cs, discovery.SourceSTUN); len(got) != c.stun {
					t.Errorf("stun candidates: got %v, want %d", got, c.stun)
				}
			})
		})
	}
}

func TestRefreshingKeepsTheMapping(t *testing.T) {
	b := simnet.PortRestricted()
	b.Ports = simnet.RandomPorts // a lost mapping would come back with another port
	b.Timeout = 30 * time.Second
	inWorld(t, &b, discovery.Options{STUNServers: []string{stun1, stun2}}, func(t *testing.T, w *world) {
		if err := w.agent.WaitGathered(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := addrsOf(w.agent.Candidates(), discovery.SourceSTUN)
		time.Sleep(30 * time.Minute) // virtual
		if after := addrsOf(w.agent.Candidates(), discovery.SourceSTUN); !slices.Equal(after, before) {
			t.Errorf("after 30 min: got %v, want %v", after, before)
		}
		if n := w.servers[0].Requests(); n < 1800/25 || n > 1800/20+1 {
			t.Errorf("%d requests in 30 min, want one each 20 to 25 s", n)
		}
		w.nat.Reboot()
		time.Sleep(26 * time.Second) // virtual
		after := addrsOf(w.agent.Candidates(), discovery.SourceSTUN)
		if len(after) != 1 || slices.Equal(after, before) {
			t.Errorf("after a reboot of the NAT: got %v, want one address that is not %v", after, before)
		}
		if got := w.agent.NAT().Mapping; got != discovery.MappingEndpointIndependent {
			t.Errorf("after a reboot of the NAT: mapping %s", got)
		}
	})
}

func TestGatheringEndsWhenAServerIsSilent(t *testing.T) {
	o := discovery.Options{
		STUNServers: []string{stun1, stun2, "nowhere.example.net:3478", "[2001:db8::1]:3478"},
		Advertise:   []string{"203.0.113.8:40582", "gw.example.net:4000", "127.0.0.1:7"},
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "gw.example.net" {
				return []netip.Addr{netip.MustParseAddr("203.0.113.9")}, nil
			}
			return nil, errors.New("no such host")
		},
	}
	inWorld(t, nil, o, func(t *testing.T, w *world) {
		w.servers[0].SetResponse(stunserver.Silent)
		w.servers[1].SetResponse(stunserver.Failing(500, "no"))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := w.agent.WaitGathered(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), stun1) || strings.Contains(err.Error(), stun2) {
			t.Errorf("after 1 s: got %v, want a deadline that names %s", err, stun1)
		}
		if err := w.agent.WaitGathered(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("gathering took %v, want 3s", d)
		}
		s := w.agent.Snapshot()
		for i, want := range []string{"no answer", "error 500", "no such host", "no route"} {
			if !strings.Contains(s.Servers[i].Err, want) {
				t.Errorf("%s: reason %q, want %q in it", s.Servers[i].Name, s.Servers[i].Err, want)
			}
		}
		want := []string{"203.0.113.8:40582", "203.0.113.9:4000", "127.0.0.1:7"}
		if got := addrsOf(s.Candidates, discovery.SourceAdvertised); !slices.Equal(got, want) {
			t.Errorf("advertised: got %v, want %v as configured", got, want)
		}
		w.servers[0].SetResponse(stunserver.Honest)
		time.Sleep(30 * time.Second) // virtual
		if s := w.agent.Snapshot(); s.Servers[0].Err != "" || s.NAT.Mapping != discovery.MappingNone {
			t.Errorf("a server that answers again: got %+v, %+v", s.Servers[0], s.NAT)
		}
	})
}

func TestLossDoesNotHideAServer(t *testing.T) {
	inWorld(t, nil, discovery.Options{STUNServers: []string{stun1}}, func(t *testing.T, w *world) {
		w.host.Link().SetDown(true)
		time.Sleep(time.Second) // virtual: the first three requests are lost
		w.host.Link().SetDown(false)
		if err := w.agent.WaitGathered(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := w.agent.Snapshot(); s.Servers[0].Err != "" || s.Servers[0].RTT != 0 {
			t.Errorf("got %+v, want an answer to the fourth request and no round trip time", s.Servers[0])
		}
	})
}

func TestChangesAreTold(t *testing.T) {
	relay := path.Relay{Via: "relay-1", Addr: netip.MustParseAddrPort("192.0.2.50:49160"), Server: "turn"}
	var mu sync.Mutex
	var relays []path.Relay
	var changes int
	var reasons []string
	o := discovery.Options{
		STUNServers: []string{stun1, stun2},
		Relays: func() []path.Relay {
			mu.Lock()
			defer mu.Unlock()
			return relays
		},
		Changed:        func() { mu.Lock(); changes++; mu.Unlock() },
		NetworkChanged: func(why string) { mu.Lock(); reasons = append(reasons, why); mu.Unlock() },
		Exclude:        []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
	}
	b := simnet.PortRestricted()
	inWorld(t, &b, o, func(t *testing.T, w *world) {
		if err := w.agent.WaitGathered(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if changes == 0 || len(reasons) != 0 {
			t.Errorf("after gathering: %d changes of candidates, want some; network changes %q, want none", changes, reasons)
		}
		step := func(what string, do func(), wantCandidates int, wantReason string) {
			t.Helper()
			changes, reasons = 0, nil
			do()
			time.Sleep(4 * time.Second) // virtual: interfaces are read every 3 s
			synctest.Wait()
			if (changes > 0) != (wantCandidates > 0) {
				t.Errorf("%s: told %d changes of candidates", what, changes)
			}
			if got := strings.Join(reasons, "; "); (got == "") != (wantReason == "") || !strings.Contains(got, wantReason) {
				t.Errorf("%s: network changes %q, want %q", what, got, wantReason)
			}
		}
		step("nothing", func() {}, 0, "")
		step("a relay", func() {
			mu.Lock()
			relays = []path.Relay{relay}
			mu.Unlock()
			w.agent.RelaysChanged()
		}, 1, "")
		if got := addrsOf(w.agent.Candidates(), discovery.SourceRelay); !slices.Equal(got, []string{"192.0.2.50:49160"}) {
			t.Errorf("relayed candidates: got %v", got)
		}
		if got := w.agent.Local(); !slices.Equal(got.Relays, []path.Relay{relay}) || got.NAT.Mapping != discovery.MappingEndpointIndependent ||
			!slices.Equal(got.Hosts, w.host.Addrs()) || len(got.Candidates) != 3 {
			t.Errorf("what a path finder is told: got %+v", got)
		}
		step("another address", func() {
			if err := w.host.SetAddrs(netip.MustParseAddr("192.168.1.6")); err != nil {
				t.Fatal(err)
			}
		}, 1, "addresses of this host changed: +192.168.1.6 -192.168.1.5")
		step("a pod's address besides", func() {
			if err := w.host.SetAddrs(netip.MustParseAddr("192.168.1.6"), netip.MustParseAddr("10.42.0.7")); err != nil {
				t.Fatal(err)
			}
		}, 0, "+10.42.0.7")
		s := w.agent.Snapshot()
		if len(s.LeftOut) != 1 || s.LeftOut[0].Addr.String() != "10.42.0.7" || !strings.Contains(s.LeftOut[0].Reason, "10.42.0.0/16") {
			t.Errorf("left out: got %+v, want the pod's address", s.LeftOut)
		}
	})
}

// A cluster may route its pods: then a STUN server outside sees a pod at its own address.
func TestAPodIsAnnouncedWhereSTUNSeesIt(t *testing.T) {
	const own = "203.0.113.5:51820"
	itself := []netip.Prefix{netip.MustParsePrefix("203.0.113.5/32")}
	elsewhere := func(w *world) {
		w.servers[1].SetResponse(func(r *stunwire.Message, _ netip.AddrPort) []byte {
			b, _ := stunwire.BindingResponse(r.TxID, netip.MustParseAddrPort("198.51.100.7:40000"))
			return b
		})
	}
	silent := func(w *world) { w.net.Close() }
	for _, c := range []struct {
		name   string
		o      discovery.Options
		before func(*world)
		want   []string
	}{
		{"all see it", discovery.Options{Inside: itself}, func(*world) {}, []string{own}},
		{"one sees it elsewhere", discovery.Options{Inside: itself}, elsewhere, []string{"198.51.100.7:40000"}},
		{"none answers", discovery.Options{Inside: itself}, silent, nil},
		{"it is excluded", discovery.Options{Inside: itself, Exclude: itself}, func(*world) {}, nil},
	} {
		c.o.STUNServers = []string{stun1, stun2}
		inWorld(t, nil, c.o, func(t *testing.T, w *world) {
			c.before(w)
			if err := w.agent.WaitGathered(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := w.agent.Candidates()
			if stun := addrsOf(got, discovery.SourceSTUN); !slices.Equal(stun, c.want) || len(stun) != len(got) {
				t.Errorf("%s: the candidates are %v, want %v of STUN alone", c.name, got, c.want)
			}
		})
	}
}

func TestAnswersOverARelayAreNotAboutTheSocket(t *testing.T) {
	inWorld(t, nil, discovery.Options{STUNServers: []string{stun1}}, func(t *testing.T, w *world) {
		var seen []byte
		w.servers[0].SetResponse(func(r *stunwire.Message, from netip.AddrPort) []byte {
			seen, _ = stunwire.BindingResponse(r.TxID, from)
			return nil
		})
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		w.agent.HandleSTUN(seen, peer.Path{Via: "relay-1", Remote: netip.MustParseAddrPort(stun1)})
		if s := w.agent.Snapshot(); s.Servers[0].Mapped.IsValid() {
			t.Errorf("an answer that came over a relay was taken: %+v", s.Servers[0])
		}
		w.agent.HandleSTUN(seen, peer.Direct(netip.MustParseAddrPort(stun1)))
		if s := w.agent.Snapshot(); !s.Servers[0].Mapped.IsValid() {
			t.Errorf("the same answer at the socket was not taken: %+v", s.Servers[0])
		}
	})
}

func TestNewRefusesWhatItCannotRead(t *testing.T) {
	ok := discovery.Options{Send: func([]byte, netip.AddrPort) error { return nil }, Port: func() uint16 { return 1 }}
	for name, change := range map[string]func(*discovery.Options){
		"no Send":            func(o *discovery.Options) { o.Send = nil },
		"no Port":            func(o *discovery.Options) { o.Port = nil },
		"advertise a name":   func(o *discovery.Options) { o.Advertise = []string{"gw.example.net"} },
		"server without one": func(o *discovery.Options) { o.STUNServers = []string{"192.0.2.1:0"} },
	} {
		o := ok
		change(&o)
		if _, err := discovery.New(o); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

func TestAnAgentRunsOnce(t *testing.T) {
	a, err := discovery.New(discovery.Options{Send: func([]byte, netip.AddrPort) error { return nil }, Port: func() uint16 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped by the test")
	cancel(why)
	if err := a.Run(ctx); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := a.Run(ctx); !errors.Is(err, discovery.ErrRunning) {
		t.Errorf("the second time: got %v, want ErrRunning", err)
	}
}
