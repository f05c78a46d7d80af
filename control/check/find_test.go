package check

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// wellTold returns the report of a peer that reaches everything here.
func wellTold() []verdict.Finding {
	var out []verdict.Finding
	for _, target := range endpoints {
		out = append(out, verdict.Finding{Name: verdict.Inbound(target), Target: target, Peer: "cloud", Direction: api.DirectionInbound,
			Outcome: api.OK, Via: verdict.ViaInBand, Heard: time.Now(), Rests: []string{verdict.Own(verdict.Upstream(target))}})
	}
	return out
}

// reporting is the runner of a healthy gateway with one peer, cloud, that is healthy in both
// directions.
type reporting struct {
	*fixture
	own      Own
	told     []verdict.Finding // what the peer reports
	upstream error             // what dialling an own upstream gives
}

func newReporting(t *testing.T) *reporting {
	r := &reporting{fixture: newFixture(t), own: publicOwn()}
	r.facts.Path = PathFacts{Kind: api.PathDirect, Remote: publicCloud, MTU: 1420, LinkMTU: 1420}
	r.told = wellTold()
	r.own.Sockets = Sockets{ReceiveBuffer: 4 << 20}
	r.own.STUN = []Server{{Name: "stun.example.net:3478", Address: "192.0.2.1:3478"}}
	r.own.Upstreams = []Upstream{{Service: "registry", Address: "10.0.0.5:5000"}}
	r.opts.Own = func() Own {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.own
	}
	r.opts.Network = Network{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.upstream != nil {
			return nil, r.upstream
		}
		a, b := net.Pipe()
		b.Close()
		return a, nil
	}}
	return r
}

func (r *reporting) change(own func(*Own), facts func(*Facts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own != nil {
		own(&r.own)
	}
	if facts != nil {
		facts(&r.facts)
	}
}

// find returns a report as the gateway makes it from its own findings and the peer's.
func (r *reporting) find(ctx context.Context, peer string, fresh bool) (api.CheckReport, error) {
	own, peers, err := r.Find(ctx, peer, fresh)
	if err != nil {
		return api.CheckReport{}, err
	}
	for i := range peers {
		peers[i].Inbound = r.told
	}
	return verdict.Report("edge", time.Now(), own, peers, peer != ""), nil
}

func (r *reporting) report(t *testing.T, peer string, fresh bool) api.CheckReport {
	t.Helper()
	start := time.Now()
	rep, err := r.find(t.Context(), peer, fresh)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the report took %s, want at most 10 s", took)
	}
	return rep
}

// faultsOf returns the errors and warnings of a report as "peer/name code".
func faultsOf(rep api.CheckReport) []string {
	var out []string
	for _, c := range rep.Checks {
		if c.Verdict.Verdict == api.Error || c.Verdict.Verdict == api.Warning {
			out = append(out, c.Peer+"/"+c.Name+" "+c.Code)
		}
	}
	return out
}

func checkOf(t *testing.T, rep api.CheckReport, name string) api.Check {
	t.Helper()
	for _, c := range rep.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s in the report", name)
	return api.Check{}
}

func TestAHealthyPairHasNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.SetPeers([]string{"cloud"})
		synctest.Wait()
		var names []string
		for i := range 100 {
			rep := r.report(t, "", i%2 == 0)
			if f := faultsOf(rep); len(f) > 0 || rep.Summary.Unknown > 0 || rep.Summary.OK != len(rep.Checks) {
				t.Fatalf("run %d: faults %v, summary %+v", i, f, rep.Summary)
			}
			names = nil
			for _, c := range rep.Checks {
				names = append(names, c.Direction+" "+c.Name)
				if c.Stages == nil {
					t.Errorf("%s has no list of stages", c.Name)
				}
			}
			if rep.Kind != "CheckReport" || rep.Gateway != "edge" || rep.APIVersion != api.Version || rep.At.IsZero() {
				t.Fatalf("got the head %s %s %s %s", rep.APIVersion, rep.Kind, rep.Gateway, rep.At)
			}
		}
		want := []string{"own network", "own exposure", "own exposure-stun", "own upstream-registry", "own resources", "own tickets", "own clock",
			"outbound gateway", "outbound mtu", "outbound auth", "outbound apiServer", "inbound inbound-gateway", "inbound inbound-auth", "inbound inbound-apiServer"}
		if !slices.Equal(names, want) {
			t.Errorf("got the checks %q, want %q", names, want)
		}
	})
}

// Each row is one or two faults, and what a report says about them: every fault once, and its
// consequences as such.
func TestEachFaultHasOneRootAndTwoAreBothNamed(t *testing.T) {
	silent := func(f *Facts) {
		f.LastHandshake, f.NoPath, f.Since = time.Time{}, "none of 1 address answers", time.Now().Add(-time.Minute)
		f.Path = PathFacts{Kind: api.PathNone, LinkMTU: 1420}
		f.Candidates = []catalogue.Candidate{{Address: publicCloud, Source: api.SourceAdvertised}}
	}
	alarm := func(o *Own) { o.TicketAlarmAt = time.Now().Add(-time.Minute) }
	for _, c := range []struct {
		name     string
		own      func(*Own)
		facts    func(*Facts)
		overlay  func(*overlay)
		upstream error
		told     func(gateway, apiServer *verdict.Finding)
		faults   []string
		depends  map[string]string
	}{
		{name: "the peer is silent", facts: silent, overlay: lost, faults: []string{"cloud/gateway PST0101"},
			depends: map[string]string{"mtu": "gateway", "auth": "gateway", "apiServer": "gateway",
				"inbound-gateway": "gateway", "inbound-auth": "gateway", "inbound-apiServer": "gateway"}},
		{name: "the peer is silent, and a ticket was stolen", own: alarm, facts: silent, overlay: lost,
			faults: []string{"/tickets PST0210", "cloud/gateway PST0101"}},
		{name: "the peer is blocked, and a STUN server is away", own: func(o *Own) { o.STUN[0].Err = "no answer" },
			facts:   func(f *Facts) { silent(f); f.HeardUnanswered = seen(publicCloud) },
			overlay: lost, faults: []string{"/exposure-stun PST0404", "cloud/gateway PST0106"}},
		{name: "nobody can dial us, and the peer would have to", own: func(o *Own) {
			o.NAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
			o.Candidates = []catalogue.Candidate{{Address: "203.0.113.9:4711", Source: api.SourceSTUN}}
		}, facts: func(f *Facts) { silent(f); f.Candidates, f.Endpoints = nil, nil }, overlay: lost,
			faults:  []string{"/exposure PST0401"},
			depends: map[string]string{"gateway": "own/exposure", "auth": "gateway", "inbound-gateway": "own/exposure"}},
		{name: "we announce a private address, and the peer would have to dial", own: func(o *Own) {
			o.Candidates = []catalogue.Candidate{{Address: "10.9.0.9:51820", Source: api.SourceAdvertised}}
		}, facts: func(f *Facts) { silent(f); f.Candidates, f.Endpoints = nil, nil }, overlay: lost,
			faults: []string{"/exposure PST0403"}, depends: map[string]string{"gateway": "own/exposure"}},
		{name: "we announce a private address, and the peer is silent", own: func(o *Own) {
			o.Candidates = []catalogue.Candidate{{Address: "10.9.0.9:51820", Source: api.SourceAdvertised}}
		}, facts: silent, overlay: lost, faults: []string{"/exposure PST0403", "cloud/gateway PST0101"}},
		{name: "the only relay is away", own: func(o *Own) {
			o.NAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
			o.Candidates = nil
			o.TURN = []Server{{Name: "turn.example.net:3478", Err: "no answer"}}
		}, facts: func(f *Facts) {
			silent(f)
			f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
			f.Candidates = []catalogue.Candidate{{Address: "192.0.2.1:50000", Source: api.SourceRelay, Relay: "turn.example.net:3478"}}
		}, overlay: lost, faults: []string{"/exposure-turn PST0405"}, depends: map[string]string{"gateway": "own/exposure-turn"}},
		{name: "packets are lost", overlay: lossy, faults: []string{"cloud/gateway PST0112"}},
		{name: "packets are lost on the relay", overlay: lossy, facts: func(f *Facts) { f.Path.Kind = api.PathRelay },
			faults: []string{"cloud/gateway PST0112", "cloud/relay PST0411"}},
		{name: "packets are lost, as the peer says as well", overlay: lossy, told: func(gateway, _ *verdict.Finding) {
			gateway.Outcome, gateway.Code = api.Warning, catalogue.PacketsLost
		}, faults: []string{"cloud/gateway PST0112"}, depends: map[string]string{"inbound-gateway": "gateway"}},
		{name: "the path is narrow, and auth is down", facts: func(f *Facts) { f.Path.MTU = 1216 },
			overlay: func(o *overlay) { o.on(api.PortAuth, nil) }, faults: []string{"cloud/mtu PST0601", "cloud/auth PST0201"}},
		{name: "our upstream is down", upstream: refusedError(), told: func(_, apiServer *verdict.Finding) {
			apiServer.Outcome, apiServer.Code = api.Error, catalogue.APIServerRefused
		}, own: func(o *Own) { o.Upstreams = []Upstream{{Service: api.ServiceAPIServer, Address: "10.0.0.5:6443"}} },
			faults: []string{"/upstream-apiServer PST0310"}, depends: map[string]string{"inbound-apiServer": "own/upstream-apiServer"}},
		{name: "only the peer sees the fault", told: func(_, apiServer *verdict.Finding) {
			apiServer.Outcome, apiServer.Code = api.Error, catalogue.APIServerTimeout
		}, faults: []string{"cloud/inbound-apiServer PST0302"}},
		{name: "the peer has told nothing", told: func(gateway, _ *verdict.Finding) {
			gateway.Outcome, gateway.Code = api.Unknown, catalogue.ReportsMissing
		}},
		{name: "the clocks differ", facts: func(f *Facts) { f.Skew = -5 * time.Minute }, faults: []string{"/clock PST0114"}},
		{name: "the peer's clock went back", facts: func(f *Facts) {
			silent(f)
			f.NoPath, f.Probed, f.Skew = "", time.Now(), -24*time.Hour
			f.StampInPast = StampSight{Sight: seen(publicCloud)}
		}, overlay: lost, faults: []string{"cloud/gateway PST0111"}},
		{name: "the peer waits for approval", facts: func(f *Facts) { f.Pending = true }, faults: []string{"cloud/gateway PST0105"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReporting(t)
				if c.overlay != nil {
					c.overlay(r.overlay)
				}
				r.upstream = c.upstream
				if c.told != nil {
					c.told(&r.told[0], &r.told[2])
				}
				r.change(c.own, c.facts)
				r.SetPeers([]string{"cloud"})
				synctest.Wait()
				rep := r.report(t, "", true)
				if got := faultsOf(rep); !slices.Equal(got, c.faults) {
					t.Errorf("got the faults %q, want %q", got, c.faults)
				}
				for name, want := range c.depends {
					got := checkOf(t, rep, name)
					if got.DependsOn != want || got.Verdict.Verdict != api.Unknown || got.Code != "" || got.Cause == "" {
						t.Errorf("%s: got %s %s, depends on %q (%s), want unknown, and %q", name, got.Verdict.Verdict, got.Code, got.DependsOn, got.Cause, want)
					}
				}
				for _, c := range rep.Checks {
					if c.DependsOn != "" && c.Verdict.Verdict != api.Unknown {
						t.Errorf("%s depends on %s and is %s", c.Name, c.DependsOn, c.Verdict.Verdict)
					}
				}
				s := rep.Summary
				if s.OK+s.Warning+s.Error+s.Unknown+s.Off != len(rep.Checks) || s.Warning+s.Error != len(c.faults) {
					t.Errorf("the summary %+v does not count %d checks with %d faults", s, len(rep.Checks), len(c.faults))
				}
			})
		})
	}
}

func lost(o *overlay) { o.pings(nil) }

// lossy makes an overlay lose every tenth echo.
func lossy(o *overlay) {
	var mu sync.Mutex
	n := 0
	o.pings(func() error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%10 == 0 {
			return errLost
		}
		return nil
	})
}

func TestAReportOnOnePeerHasOwnChecksOnlyWhereItNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.SetPeers([]string{"cloud"})
		synctest.Wait()
		if rep := r.report(t, "cloud", false); slices.ContainsFunc(rep.Checks, func(c api.Check) bool { return c.Peer == "" }) {
			t.Errorf("own checks in %+v", rep.Checks)
		}
		r.overlay.pings(nil)
		r.change(func(o *Own) {
			o.Candidates = []catalogue.Candidate{{Address: "127.0.0.1:51820", Source: api.SourceAdvertised}}
		}, func(f *Facts) { f.LastHandshake, f.Endpoints = time.Time{}, nil })
		rep := r.report(t, "cloud", true)
		if len(rep.Checks) == 0 || rep.Checks[0].Name != NameExposure {
			t.Errorf("the root is missing: %q", faultsOf(rep))
		}
		if _, err := r.find(t.Context(), "nobody", true); !errors.Is(err, ErrNoPeer) {
			t.Errorf("of a stranger: got %v", err)
		}
	})
}

// A running round gives way; what hangs is unknown after 10 s.
func TestAReportIsThereWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.overlay.pings(nil) // hangs
		r.SetPeers([]string{"cloud"})
		synctest.Wait()
		time.Sleep(time.Second) // the first round is under way
		rep := r.report(t, "", true)
		if got := checkOf(t, rep, api.ServiceGateway); got.Verdict.Verdict != api.Error {
			t.Errorf("got %+v", got.Verdict)
		}
		// Pings are late and no service answers, so not everything fits into the time.
		var mu sync.Mutex
		n := 0
		r.opts.Ping = func(ctx context.Context, to netip.Addr, _ int) (time.Duration, error) {
			mu.Lock()
			n++
			first := n < 11
			mu.Unlock()
			if first {
				<-ctx.Done()
				return 0, errLost
			}
			return time.Millisecond, nil
		}
		r.change(nil, func(f *Facts) { f.Offers = nil })
		r.opts.OnHello = nil
		r.overlay.on(api.PortAuth, silent)
		r.overlay.on(api.PortAPIServer, silent)
		r.opts.Facts = func(string) (Facts, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.facts, true
		}
		rep = r.report(t, "", true)
		if got := checkOf(t, rep, api.ServiceAuth); got.Code != string(catalogue.AuthTimeout) {
			t.Errorf("auth: got %+v", got.Verdict)
		}
		if got := checkOf(t, rep, api.ServiceAPIServer); got.Verdict.Verdict != api.Unknown || !strings.Contains(got.Cause, "9s") {
			t.Errorf("apiServer: got %+v, want unknown for want of time", got.Verdict)
		}
	})
}

// What is wrong with the path is told beside the loss, as long as that is.
func TestLossStandsBesideWhatIsWrongWithThePath(t *testing.T) {
	for _, c := range []struct {
		name string
		code catalogue.Code
		path func(*Facts)
	}{
		{NameRelay, catalogue.RelayInUse, func(f *Facts) { f.Path.Kind = api.PathRelay }},
		{NameProbes, catalogue.ProbesDropped, func(f *Facts) {
			f.Path.Kind, f.Path.Answered, f.Path.Asked, f.Endpoints = api.PathDirect, time.Time{}, time.Now().Add(time.Hour), []string{publicCloud}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReporting(t)
				lossy(r.overlay)
				r.set(func(f *Facts) {
					f.LastHandshake, f.Path.Since = time.Now(), time.Now().Add(-time.Minute)
					c.path(f)
				})
				r.SetPeers([]string{"cloud"})
				time.Sleep(time.Minute)
				r.report(t, "", true)
				r.overlay.pings(func() error { return nil })
				for _, when := range []string{"as it was measured", "after another round"} {
					synctest.Wait()
					if a, b := r.Finding("cloud", api.ServiceGateway), r.Finding("cloud", c.name); a.Code != catalogue.PacketsLost || b.Code != c.code {
						t.Errorf("%s: got %s and %s, want PST0112 and %s", when, a.Code, b.Code, c.code)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// A measured loss is kept until the next measurement, and ends then.
func TestLossStandsUntilItIsMeasuredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		lossy(r.overlay)
		r.SetPeers([]string{"cloud"})
		synctest.Wait()
		if got := r.Targets("cloud").Gateway; got.Verdict != api.OK {
			t.Errorf("without being asked: %+v", got)
		}
		r.report(t, "", true)
		r.overlay.pings(func() error { return nil })
		sent := r.overlay.pinged()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := r.Targets("cloud").Gateway; got.Code != string(catalogue.PacketsLost) {
			t.Errorf("after 3 min: %+v", got)
		}
		if n := r.overlay.pinged() - sent; n > 20 {
			t.Errorf("%d pings in 3 min", n)
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := r.Targets("cloud").Gateway; got.Verdict != api.OK {
			t.Errorf("after 7 min: %+v", got)
		}
	})
}

func TestFindingsHaveTheirParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.overlay.on(api.PortAuth, says(status("500 Oops")))
		r.opts.OnHello = func(string, auth.Hello) {}
		r.opts.Facts = func(name string) (Facts, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			f := r.facts
			f.Name = name
			return f, true
		}
		r.SetPeers([]string{"edge2", "cloud"})
		synctest.Wait()
		if got := r.Finding("edge2", api.ServiceAuth).Params(); got.Status != 500 || got.Peer != "edge2" {
			t.Errorf("got the parameters %+v", got)
		}
	})
}

// refusedError returns the error of dialling a port where nothing listens.
func refusedError() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}
