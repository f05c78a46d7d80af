package check

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// link is a path that passes pings or drops them.
type link struct {
	mu    sync.Mutex
	rng   *rand.Rand
	loss  float64 // of an echo, there and back together
	delay time.Duration
	most  int // bytes of the largest packet that crosses; 0 = any
	sent  int
	// each is how long the line takes to send one packet; the others wait in its queue until busy.
	each time.Duration
	busy time.Time
}

func (l *link) Ping(ctx context.Context, _ netip.Addr, payload int) (time.Duration, error) {
	l.mu.Lock()
	l.sent++
	lost := l.rng.Float64() < l.loss || l.most > 0 && payload+48 > l.most
	now := time.Now()
	if l.busy.Before(now) {
		l.busy = now
	}
	l.busy = l.busy.Add(l.each)
	trip := l.busy.Sub(now) + l.delay
	l.mu.Unlock()
	if lost {
		trip = time.Hour
	}
	wait := time.NewTimer(trip)
	defer wait.Stop()
	select { // virtual
	case <-wait.C:
		return trip, nil
	case <-ctx.Done():
		return 0, errLost
	}
}

func newLink(seed uint64, loss float64) *link {
	return &link{rng: rand.New(rand.NewPCG(seed, 1)), loss: loss, delay: 20 * time.Millisecond}
}

func TestLossIsFoundAndHealthIsNotCalledLoss(t *testing.T) {
	const runs = lossRuns
	for _, c := range []struct {
		name     string
		loss     float64
		from, to int // how many of the runs may find it
	}{
		{"none", 0, 0, 0},
		{"0.01 %", 0.0001, 0, 1},
		{"5 % in one direction", 0.05, runs - 4, runs},
		{"5 % each way", 0.0975, runs, runs},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found := 0
				for i := range runs {
					start := time.Now()
					l, ok := measureLoss(t.Context(), newLink(uint64(i), c.loss).Ping, facts(), 20*time.Millisecond)
					if took := time.Since(start); !ok || took > 3*time.Second+20*time.Millisecond {
						t.Fatalf("measured %v in %s, want a result within 3.02 s", ok, took)
					}
					if l.sent != lossPings || l.lost < lossPings && l.rtt != 20*time.Millisecond {
						t.Fatalf("got %+v", l)
					}
					if l.lost >= lossThreshold {
						found++
					}
				}
				if found < c.from || found > c.to {
					t.Errorf("found in %d of %d runs, want %d to %d", found, runs, c.from, c.to)
				}
			})
		})
	}
}

// Where only large packets are lost now and then, their size is named, and neither is the line called
// narrow nor all packets lossy. Where all of them are lost, it is narrow.
func TestALossOfLargePacketsIsNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		loss float64
		code catalogue.Code
	}{{"none", 0, ""}, {"half", 0.5, catalogue.PacketsLost}, {"all", 1, ""}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, rng := facts(), rand.New(rand.NewPCG(7, 7))
				f.Path = PathFacts{Kind: api.PathDirect, Remote: publicCloud, MTU: 1420, LinkMTU: 1420}
				var mu sync.Mutex
				ping := func(ctx context.Context, _ netip.Addr, payload int) (time.Duration, error) {
					mu.Lock()
					lost := payload > 600 && rng.Float64() < c.loss
					mu.Unlock()
					if lost {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					return 20 * time.Millisecond, nil
				}
				l, ok := measureLoss(t.Context(), ping, f, 20*time.Millisecond)
				if !ok || l.sent != lossPings || l.lost != 0 || l.large != lossPings/largeEvery {
					t.Fatalf("got %v, %+v", ok, l)
				}
				r := begin(api.ServiceGateway, api.ServiceGateway, f)
				got := withLoss(r.ok(0), l, f)[0]
				if v := got.Verdict(); got.Code != c.code || c.code != "" && (!strings.Contains(v.Cause, "of 10 pings of 1420 bytes") || !strings.Contains(v.Cause, "small ones are not")) {
					t.Errorf("got %s: %s", got.Code, v.Cause)
				}
			})
		})
	}
}

// A path that takes a second or more, or that the burst itself fills, loses nothing.
func TestASlowEchoIsNotALostOne(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		delay, each time.Duration
		loss        float64
		lost        bool
	}{
		{"0.9 s", 900 * ms, 0, 0, false},
		{"1.2 s", 1200 * ms, 0, 0, false},
		{"2.9 s", 2900 * ms, 0, 0, false},
		{"a line of 64 kbit/s", 60 * ms, 21 * ms, 0, false},
		{"a line of 28 kbit/s", 100 * ms, 48 * ms, 0, false},
		{"1.2 s with a loss of 20 %", 1200 * ms, 0, 0.2, true},
		{"a line of 64 kbit/s with a loss of 20 %", 60 * ms, 21 * ms, 0.2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := newLink(1, c.loss)
				link.delay, link.each = c.delay, c.each
				l, ok := measureLoss(t.Context(), link.Ping, facts(), c.delay)
				if !ok || c.lost != (l.lost >= lossThreshold) {
					t.Errorf("got %+v, %v", l, ok)
				}
				f := facts()
				f.Path = PathFacts{Kind: api.PathDirect, Remote: publicCloud, LinkMTU: 1420, RTT: c.delay}
				if r, _ := MTU(t.Context(), link.Ping, f, true); r.Outcome != api.OK {
					t.Errorf("the path is called narrow: %s", r.Verdict().Cause)
				}
			})
		})
	}
}

// A round trip of a second or more has a name.
func TestASlowPathIsNamed(t *testing.T) {
	for _, c := range []struct {
		delay   time.Duration
		outcome api.Outcome
		code    catalogue.Code
		stage   string
	}{{600 * time.Millisecond, api.OK, "", ""}, {1200 * time.Millisecond, api.Warning, catalogue.PathSlow, StagePing}} {
		synctest.Test(t, func(t *testing.T) {
			link, f := newLink(1, 0), facts()
			link.delay, f.LastHandshake = c.delay, time.Now().Add(-time.Minute)
			checkVerdict(t, Gateway(t.Context(), link.Ping, f), c.outcome, c.code, c.stage)
		})
	}
}

func TestJitterIsTheMeanDifferenceOfRoundTrips(t *testing.T) {
	const ms = time.Millisecond
	got := lossOf([]time.Duration{10 * ms, noAnswer, 14 * ms, 12 * ms, 12 * ms})
	if want := (loss{sent: 5, lost: 1, rtt: 12 * ms, jitter: 2 * ms}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := lossOf([]time.Duration{noAnswer, noAnswer}); got.lost != 2 || got.rtt != 0 || got.jitter != 0 {
		t.Errorf("of nothing: got %+v", got)
	}
}

func TestWhatSizesCross(t *testing.T) {
	direct := func(mtu, link int) PathFacts {
		return PathFacts{Kind: api.PathDirect, Remote: publicCloud, MTU: mtu, LinkMTU: link}
	}
	over := func(p PathFacts, remote string) PathFacts { p.Remote = remote; return p }
	relay := func(p PathFacts) PathFacts { p.Kind = api.PathRelay; return p }
	for _, c := range []struct {
		name    string
		path    PathFacts
		most    int // largest packet inside the tunnel that arrives; 0 = any, in fragments
		measure bool
		warn    bool
		cause   []string
		fix     string
	}{
		{"a path of 1500 bytes", direct(1420, 1420), 0, true, false, nil, ""},
		{"not measured by the path finder yet", direct(0, 1420), 0, true, false, nil, ""},
		{"1280 bytes, ICMP filtered, fragments pass", direct(1216, 1420), 0, true, true,
			[]string{"packets of 1340 bytes", "those of 1216 bytes do", "1420"}, "set spec.mtu: 1280 on both gateways"},
		{"the same over IPv6", over(direct(1200, 1420), "[2001:db8::7]:51820"), 0, true, true, []string{"1320 bytes", "1200"}, "set spec.mtu: 1280"},
		{"1450 bytes behind a link of 1500", direct(1376, 1420), 0, false, true, []string{"1420 bytes", "1376"}, "set spec.mtu: 1376"},
		{"1460 bytes as the link itself has", direct(1376, 1400), 0, true, false, nil, ""},
		{"1450 bytes as the link itself has", direct(1376, 1390), 0, true, false, nil, ""},
		{"1399 bytes as the link itself has", direct(1216, 1339), 0, true, false, nil, ""},
		{"1280 bytes, and spec.mtu is at its least", direct(1216, 1280), 0, true, false, nil, ""},
		{"a black hole that the path finder does not see", direct(0, 1420), 1300, true, true,
			[]string{"packets of 1328 bytes", "are lost", "those of 1280 bytes pass"}, "set spec.mtu: 1280"},
		{"a black hole below the least MTU", direct(1216, 1280), 1250, true, true, []string{"packets of 1280 bytes", "those of 1216 bytes pass"}, "`traceroute -n -F 198.51.100.7 1340`"},
		{"a black hole that is not measured", direct(0, 1420), 1300, false, false, nil, ""},
		{"jumbo frames all the way", direct(8920, 8920), 0, true, false, nil, ""},
		{"jumbo frames as far as a cloud's network", direct(8880, 8920), 0, true, false, nil, ""},
		{"jumbo frames as far as Ethernet", direct(1440, 8920), 1440, true, false, nil, ""},
		{"jumbo frames as far as Ethernet, over IPv6", over(direct(1408, 8920), "[2001:db8::7]:51820"), 0, true, false, nil, ""},
		{"jumbo frames as far as VXLAN", direct(1376, 8920), 0, false, true, []string{"packets of 1432 bytes", "those of 1376 bytes do", "8920"}, "set spec.mtu: 1376"},
		{"jumbo frames as far as a tunnel that swallows fragments", direct(0, 8920), 1300, true, true, []string{"packets of 1328 bytes", "those of 1280 bytes pass"}, "set spec.mtu: 1280"},
		{"VXLAN, and spec.mtu is no multiple of four", direct(1376, 1430), 0, false, true, []string{"packets of 1430 bytes", "those of 1376 bytes do"}, "set spec.mtu: 1376"},
		{"what a relay's header takes", relay(direct(1376, 1420)), 0, true, false, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := facts()
				f.own = &Own{Shown: catalogue.Shown{Candidates: []catalogue.Candidate{{Address: "203.0.113.9:51820"}}}}
				f.Path = c.path
				l := newLink(1, 0)
				l.most = c.most
				start := time.Now()
				r, ok := MTU(t.Context(), l.Ping, f, c.measure)
				if !ok || r.Name != NameMTU {
					t.Fatalf("got %v %+v", ok, r)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("took %s", took)
				}
				if !c.measure && l.sent > 0 {
					t.Errorf("%d pings were sent unasked", l.sent)
				}
				if !c.warn {
					checkVerdict(t, r, api.OK, "", "")
					return
				}
				checkVerdict(t, r, api.Warning, catalogue.PathMTUSmall, StageMTU)
				for _, want := range c.cause {
					if !strings.Contains(r.Verdict().Cause, want) {
						t.Errorf("the cause lacks %q: %s", want, r.Verdict().Cause)
					}
				}
				if fix := r.Verdict().Fix; !strings.Contains(fix, c.fix) || strings.Contains(fix, "ADDRESS") {
					t.Errorf("the fix lacks %q, or an address: %s", c.fix, fix)
				}
			})
		})
	}
}

// Loss is not an MTU black hole: large packets are lost as often as small ones.
func TestALossyPathIsNotANarrowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := 0
		for i := range uint64(300) {
			f := facts()
			f.Path = PathFacts{Kind: api.PathDirect, Remote: publicCloud, LinkMTU: 1420}
			if r, _ := MTU(t.Context(), newLink(i, 0.0975).Ping, f, true); r.Outcome != api.OK {
				wrong++
			}
		}
		if wrong > 1 {
			t.Errorf("%d of 300 checks of a path with 5 %% loss each way call it narrow", wrong)
		}
	})
}

func TestARelayInUse(t *testing.T) {
	for _, c := range []struct {
		name  string
		since time.Duration
		warn  bool
	}{{"at the start", 5 * time.Second, false}, {"for a while", time.Minute, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := facts()
				f.Path = PathFacts{Kind: api.PathRelay, Remote: "192.0.2.1:50000", Relay: "turn.example.net:3478", Since: time.Now().Add(-c.since), Answered: time.Now(),
					NAT: catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}, PeerNAT: catalogue.NAT{Mapping: "address-and-port-dependent", Filtering: ""}}
				f.Candidates = []catalogue.Candidate{{Address: "198.51.100.7:1025", Source: api.SourceSTUN, Reason: "both NATs map by destination"}}
				o := newOverlay(t)
				o.pings(func() error { return nil })
				r := Gateway(t.Context(), o.Ping, f)
				if !c.warn {
					checkVerdict(t, r, api.OK, "", "")
					return
				}
				checkVerdict(t, r, api.Warning, catalogue.RelayInUse, StageProbe)
				for _, want := range []string{"turn.example.net:3478", "cloud is behind a NAT with address-and-port-dependent mapping", "this gateway behind a NAT with address-dependent mapping", "both NATs map by destination"} {
					if !strings.Contains(r.Verdict().Cause, want) {
						t.Errorf("the cause lacks %q: %s", want, r.Verdict().Cause)
					}
				}
				// With loss as well both are named.
				both := withLoss(r, loss{sent: 200, lost: 11, rtt: time.Millisecond}, f)
				if len(both) != 2 || both[0].Code != catalogue.PacketsLost || both[1].Name != NameRelay || both[1].Code != catalogue.RelayInUse {
					t.Errorf("with loss: got %+v", both)
				}
			})
		})
	}
}

// A tunnel that breaks while its services are checked is silent: nothing is said about loss or the
// services.
func TestATunnelThatGoesDuringARoundIsSilent(t *testing.T) {
	for _, measured := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.SetPeers([]string{"cloud"})
			f.want(t, "at first", "ok ok ok")
			f.overlay.on(api.PortAuth, func(c net.Conn) {
				f.overlay.pings(nil) // from now on nothing passes
				silent(c)
			})
			rep, err := f.check(t.Context(), "cloud", measured)
			if err != nil {
				t.Fatal(err)
			}
			f.want(t, "with the tunnel gone", "error unknown unknown")
			if g, _ := verdict.Find(rep.Findings, api.ServiceGateway); g.Code != catalogue.Unanswered {
				t.Errorf("measured: %v: got %s, want %s", measured, g.Code, catalogue.Unanswered)
			}
		})
	}
}
