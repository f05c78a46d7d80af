package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// disturbance decides which attempts fail.
type disturbance struct {
	mu    sync.Mutex
	since time.Time // zero while nothing is wrong
	n     int       // attempts since then
	fails func(n int, since time.Duration) bool
}

func (d *disturbance) set(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n, d.since = 0, time.Time{}
	if on {
		d.since = time.Now()
	}
}

// strikes counts an attempt, and reports whether it fails.
func (d *disturbance) strikes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return false
	}
	d.n++
	return d.fails(d.n, time.Since(d.since))
}

// Which attempts fail: every nth, or those in the first part of each period.
func everyNth(n int) func(int, time.Duration) bool {
	return func(i int, _ time.Duration) bool { return i%n == 0 }
}

func firstOf(part, period time.Duration) func(int, time.Duration) bool {
	return func(_ int, since time.Duration) bool { return since%period < part }
}

// Where they fail.

func atPort(port uint16, bad func(net.Conn)) func(*reporting, *disturbance) {
	return func(r *reporting, d *disturbance) {
		good := r.overlay.ports[port]
		r.overlay.on(port, func(c net.Conn) {
			if d.strikes() {
				bad(c)
				return
			}
			good(c)
		})
	}
}

func atPings(r *reporting, d *disturbance) {
	r.overlay.pings(func() error {
		if d.strikes() {
			return errLost
		}
		return nil
	})
}

func atNames(r *reporting, d *disturbance) {
	r.own.Upstreams[0].Address = "registry.example.net:5000"
	r.opts.Network.Lookup = func(context.Context, string) ([]netip.Addr, error) {
		if d.strikes() {
			return nil, &net.DNSError{Err: "server misbehaving", Name: "registry.example.net", IsTemporary: true}
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.5")}, nil
	}
}

func atUpstream(r *reporting, d *disturbance) {
	dial := r.opts.Network.Dial
	r.opts.Network.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if d.strikes() {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		return dial(ctx, to)
	}
}

const comesAndGoes = "warning " + string(catalogue.Intermittent)

// shownAs returns the verdict of a check as it is shown now, and its outcome and code.
func (r *reporting) shownAs(t *testing.T, name string) (v api.Verdict, is string) {
	t.Helper()
	v = checkOf(t, r.report(t, "", false), name).Verdict
	return v, strings.TrimSpace(string(v.Verdict) + " " + v.Code)
}

// watch looks at a check each second until it is shown as wanted, and returns how long that took.
func (r *reporting) watch(t *testing.T, name, want string, within time.Duration) time.Duration {
	t.Helper()
	begin, is := time.Now(), ""
	for time.Since(begin) < within {
		if _, is = r.shownAs(t, name); is == want {
			return time.Since(begin)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	t.Fatalf("%s is %q after %s, want %q", name, is, within, want)
	return 0
}

// disturbed returns the runner of a peer that has been well for a minute.
func disturbed(t *testing.T, at func(*reporting, *disturbance), fails func(int, time.Duration) bool) (*reporting, *disturbance) {
	r, d := newReporting(t), &disturbance{fails: fails}
	at(r, d)
	r.SetPeers([]string{"cloud"})
	time.Sleep(time.Minute)
	if f := faultsOf(r.report(t, "", false)); len(f) > 0 {
		t.Fatalf("before anything is wrong: %v", f)
	}
	return r, d
}

// wakeEvery wakes the checks, like the path finder when it has given up a path.
func (r *reporting) wakeEvery(ctx context.Context, first, period time.Duration) {
	for next := time.After(first); ; next = time.After(period) {
		select {
		case <-next:
			r.Wake("cloud")
		case <-ctx.Done():
			return
		}
	}
}

// What comes and goes is found, whatever it is. From then on the check is not shown as ok until
// nothing has failed for 10 min.
func TestFaultsThatComeAndGoAreFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    func(*reporting, *disturbance)
		fails func(int, time.Duration) bool
		check string
		code  catalogue.Code // what it fails with
	}{
		{"every third connection to the API server meets a dead backend", atPort(api.PortAPIServer, func(net.Conn) {}), everyNth(3), api.ServiceAPIServer, catalogue.TLSFailed},
		{"the path is lost for 20 s every 2 min", atPings, firstOf(20*time.Second, 2*time.Minute), api.ServiceGateway, catalogue.HandshakeStale},
		{"a name server answers every other time", atNames, everyNth(2), "upstream-registry", catalogue.UpstreamName},
		{"auth is up for a minute and then down for 20 s", atPort(api.PortAuth, says(status("503 Service Unavailable"))), firstOf(20*time.Second, 80*time.Second), api.ServiceAuth, catalogue.AuthHTTP},
		{"the server behind a service here refuses for 40 s every 2 min", atUpstream, firstOf(40*time.Second, 2*time.Minute), "upstream-registry", catalogue.UpstreamRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, d := disturbed(t, c.at, c.fails)
				d.set(true)
				if c.check == api.ServiceGateway {
					go r.wakeEvery(t.Context(), 10*time.Second, 2*time.Minute)
				}
				t.Logf("found after %s", r.watch(t, c.check, comesAndGoes, 4*time.Hour))
				v, _ := r.shownAs(t, c.check)
				if !strings.Contains(v.Cause, " with "+string(c.code)+": ") || v.Fix == "" {
					t.Errorf("got the cause %q and the fix %q, want %s in it", v.Cause, v.Fix, c.code)
				}
				var failed time.Time // when it was last shown to
				for range 1200 {
					time.Sleep(time.Second)
					switch v, is := r.shownAs(t, c.check); {
					case is == comesAndGoes:
					case v.Verdict == api.Error && strings.Contains(v.Cause, "it comes and goes ("):
						failed = time.Now()
					default:
						t.Fatalf("it is shown as %s: %s", is, v.Cause)
					}
				}
				if failed.IsZero() {
					t.Error("it is never shown to fail")
				}
				d.set(false)
				r.watch(t, c.check, "ok", recentFor+2*time.Minute)
				if took := time.Since(failed); took < recentFor-time.Minute { // what is shown is up to a round old
					t.Errorf("it is forgotten %s after it was last shown to fail", took)
				}
				time.Sleep(time.Hour)
				if f := faultsOf(r.report(t, "", true)); len(f) > 0 {
					t.Errorf("an hour after it ended: %v", f)
				}
			})
		})
	}
}

// outages fail at the given times, for some time each.
func outages(lasting time.Duration, at ...time.Duration) func(int, time.Duration) bool {
	return func(_ int, since time.Duration) bool {
		for _, a := range at {
			if a <= since && since < a+lasting {
				return true
			}
		}
		return false
	}
}

// startedAfter adds a start of the peer for each of the times that have passed.
func startedAfter(since time.Duration, at ...time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Boots, f.BootsAt = []uint64{1}, []time.Time{time.Now().Add(-time.Hour)}
		for i, a := range at {
			if since >= a {
				f.Boots, f.BootsAt = append(f.Boots, uint64(2+i)), append(f.BootsAt, time.Now().Add(a-since))
			}
		}
	}
}

// What is over, or was made by somebody, does not come and go.
func TestWhatDoesNotComeAndGo(t *testing.T) {
	const long = 40 * time.Second
	for _, c := range []struct {
		name  string
		at    func(*reporting, *disturbance)
		fails func(int, time.Duration) bool
		// each is called every second meanwhile; it may be nil.
		each func(*testing.T, *reporting, time.Duration)
	}{
		{"one outage", atPings, outages(5*time.Minute, 0), nil},
		{"one outage of a service", atPort(api.PortAuth, says(status("503 Oops"))), outages(8*time.Minute, 0), nil},
		{"one outage with a relapse at its end", atPort(api.PortAuth, says(status("503 Oops"))), func(_ int, since time.Duration) bool {
			return since < 8*time.Minute || 8*time.Minute+6*time.Second < since && since < 8*time.Minute+12*time.Second
		}, nil},
		{"two outages far apart", atPings, outages(long, 0, 12*time.Minute), nil},
		{"somebody repeats the check during the end of an outage", atPort(api.PortAuth, says(status("503 Oops"))),
			func(n int, since time.Duration) bool { return since < 15*time.Second && n%2 == 0 },
			func(t *testing.T, r *reporting, since time.Duration) {
				if since > time.Minute {
					return
				}
				if _, err := r.Check(t.Context(), "cloud"); err != nil {
					t.Error(err)
				}
			}},
		{"the peer was restarted twice", atPings, outages(long, 0, 4*time.Minute), func(_ *testing.T, r *reporting, since time.Duration) {
			r.change(nil, startedAfter(since, long, 4*time.Minute+long))
		}},
		{"the configuration was changed in between", atPings, outages(long, 0, 4*time.Minute), func(_ *testing.T, r *reporting, since time.Duration) {
			if since > 2*time.Minute && since < 2*time.Minute+2*time.Second {
				r.Forget()
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, d := disturbed(t, c.at, c.fails)
				d.set(true)
				failed := false
				for begin := time.Now(); time.Since(begin) < 20*time.Minute; time.Sleep(time.Second) {
					if c.each != nil {
						c.each(t, r, time.Since(begin))
					}
					synctest.Wait()
					for _, f := range faultsOf(r.report(t, "", false)) {
						failed = true
						if strings.HasSuffix(f, string(catalogue.Intermittent)) {
							t.Fatalf("after %s: %s", time.Since(begin), f)
						}
					}
				}
				if !failed {
					t.Error("nothing failed: the test shows nothing")
				}
			})
		})
	}
}

// A peer that starts again and again is no restart.
func TestACrashLoopOfThePeerComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const period, down = 3 * time.Minute, 40 * time.Second
		r, d := disturbed(t, atPings, firstOf(down, period))
		d.set(true)
		begin := time.Now()
		for is := ""; is != comesAndGoes; _, is = r.shownAs(t, api.ServiceGateway) {
			if time.Since(begin) > 3*period {
				t.Fatal("it is not found")
			}
			var at []time.Duration
			for a := down; a < 3*period; a += period {
				at = append(at, a)
			}
			r.change(nil, startedAfter(time.Since(begin), at...))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if took := time.Since(begin); took < 2*period {
			t.Errorf("two restarts count as a crash loop, after %s", took)
		}
	})
}

// A gateway that starts, or a machine that is too busy, counts nothing.
func TestWhatFailsBeforeItWorkedIsNoEpisode(t *testing.T) {
	now := time.Now()
	finding := func(o api.Outcome) verdict.Finding {
		f := verdict.Finding{Name: api.ServiceAuth, Target: api.ServiceAuth, Direction: api.DirectionOutbound, Outcome: o, At: now}
		if o == api.Error {
			f.Code = catalogue.AuthRefused
		}
		return f
	}
	const apart = 30 * time.Second
	for _, c := range []struct {
		name   string
		rounds string // what each says: ok, Error, unknown, or dependent
		every  time.Duration
		want   bool
	}{
		{"a start", "EEEoooEooo", apart, false},
		{"after something else failed", "oooEuEoouEoooo", apart, false},
		{"twice", "oooEoooEooo", apart, true},
		{"twice, one after a start", "EoooEooEo", apart, true},
		{"an outage with one lucky round", "ooEoEEEEEEEEoooo", 5 * time.Second, false},
		{"an outage with two lucky rounds", "ooEoEEEEEEEEoEEEEoooo", 5 * time.Second, false},
		{"twice, the second time with a lucky round", "ooEoooooEoEo", 5 * time.Second, true},
		{"what turns out to follow from another", "oEdoEddo", apart, false},
		{"once, and what turns out to follow from another", "oEooEEdoooEdo", apart, false},
		{"twice, and what turns out to follow from another", "oEooEooEdo", apart, true},
		{"twice, with what follows from another in between", "oEooEdooEo", apart, true},
	} {
		var m recent
		for _, round := range c.rounds {
			now = now.Add(c.every)
			f := finding(map[rune]api.Outcome{'o': api.OK, 'E': api.Error, 'u': api.Unknown, 'd': api.Unknown}[round])
			if round == 'd' {
				f.Because = &verdict.Finding{Name: NameNetwork, Direction: api.DirectionOwn, Outcome: api.Error, Code: catalogue.NothingAnswers}
			}
			m.peer([]verdict.Finding{f}, time.Time{}, now)
		}
		got := m.shown([]verdict.Finding{finding(api.OK)}, now)[0].Code == catalogue.Intermittent
		if got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

// All checks that come and go are shown, each as it is now.
func TestSeveralChecksComeAndGo(t *testing.T) {
	now := time.Now()
	round := func(o api.Outcome) (list []verdict.Finding) {
		for _, name := range []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer, NameAuthDirect} {
			f := verdict.Finding{Name: name, Target: strings.TrimSuffix(name, "-direct"), Direction: api.DirectionOutbound, Outcome: o, At: now}
			if o == api.Error {
				f.Code = catalogue.AuthRefused
			}
			list = append(list, f)
		}
		return list
	}
	var m recent
	for _, o := range []api.Outcome{api.OK, api.Error, api.OK, api.Error, api.OK} {
		now = now.Add(30 * time.Second)
		m.peer(round(o), time.Time{}, now)
	}
	for _, f := range m.shown(round(api.OK), now) {
		if f.Code != catalogue.Intermittent {
			t.Errorf("%s is shown as %s %s", f.Name, f.Outcome, f.Code)
		}
	}
	for _, f := range m.shown(round(api.Error), now) {
		if p := f.Params(); f.Code != catalogue.AuthRefused || p.Failures != 2 || p.Checks != 4 || p.RootCode != "" {
			t.Errorf("%s is shown as %s %s: %+v", f.Name, f.Outcome, f.Code, p)
		}
	}
	relayed := round(api.OK)[:1]
	relayed[0].Outcome, relayed[0].Code = api.Warning, catalogue.RelayInUse
	if f := m.shown(relayed, now)[0]; f.Code != catalogue.RelayInUse || f.Params().RootCode != catalogue.AuthRefused {
		t.Errorf("a relay in use is shown as %s: %+v", f.Code, f.Params())
	}
}

// Rounds that somebody demands do not count more than those on schedule.
func TestRoundsOnDemandCountLikeOthers(t *testing.T) {
	var m recent
	now, counted := time.Now(), 0
	for range 600 {
		now = now.Add(time.Second)
		if m.counts(false, now) {
			counted++
		}
	}
	if counted != 30 {
		t.Errorf("%d of 600 rounds in 10 min count, want 30", counted)
	}
	if !m.counts(true, now) {
		t.Error("a round on schedule does not count")
	}
}

// Whatever a peer makes fail, little is remembered of it.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	var m recent
	now := time.Now()
	for i := range 1000 {
		now = now.Add(time.Second)
		var list []verdict.Finding
		for n := range 200 {
			list = append(list, verdict.Finding{Name: string(rune('a' + n)), Direction: api.DirectionOwn, Outcome: []api.Outcome{api.OK, api.Error}[i/40%2], Code: catalogue.AuthHTTP, At: now})
		}
		m.own(list, now)
	}
	if len(m.checks) > maxRecent {
		t.Errorf("%d checks are remembered", len(m.checks))
	}
	l := m.checks["own/a"].lapse
	if l == nil {
		t.Fatal("nothing is remembered")
	}
	if checks, failures := l.tally(now); checks > 630 || checks < 600 || failures > checks {
		t.Errorf("%d of %d checks in 10 min failed, want of about 600", failures, checks)
	}
	if got := m.shown(nil, now.Add(recentFor+time.Minute)); len(got) != 0 {
		t.Errorf("after 10 min %d findings remain", len(got))
	}
}

// What is told to a peer instead of a failure is all that it is told later, too.
func TestAPeerIsNotToldMoreOfWhatComesAndGoes(t *testing.T) {
	now := time.Now()
	finding := func(o api.Outcome, code, told catalogue.Code) verdict.Finding {
		f := verdict.Finding{Name: api.ServiceGateway, Target: api.ServiceGateway, Direction: api.DirectionOutbound, Outcome: o, Code: code, At: now}
		if told != "" {
			f.Told = &verdict.Finding{Name: f.Name, Target: f.Target, Direction: f.Direction, Outcome: o, Code: told, At: now}
		}
		return f
	}
	var m recent
	for range 2 {
		now = now.Add(30 * time.Second)
		m.peer([]verdict.Finding{finding(api.OK, "", "")}, time.Time{}, now)
		now = now.Add(30 * time.Second)
		m.peer([]verdict.Finding{finding(api.Error, catalogue.NotHeardByPeer, catalogue.PeerSilent)}, time.Time{}, now)
	}
	for _, c := range []struct {
		now                 verdict.Finding
		code, root          catalogue.Code // here
		toldCode, toldRoots catalogue.Code // to the peer
	}{
		{finding(api.OK, "", ""), catalogue.Intermittent, catalogue.NotHeardByPeer, catalogue.Intermittent, catalogue.PeerSilent},
		{finding(api.Error, catalogue.PathSlow, ""), catalogue.PathSlow, catalogue.NotHeardByPeer, catalogue.PathSlow, catalogue.PeerSilent},
		{finding(api.Error, catalogue.NotHeardByPeer, catalogue.PeerSilent), catalogue.NotHeardByPeer, "", catalogue.PeerSilent, ""},
	} {
		got := m.shown([]verdict.Finding{c.now}, now)[0]
		told := got.ForPeer()
		if got.Code != c.code || got.Params().RootCode != c.root || got.Params().Failures != 2 {
			t.Errorf("%q is shown as %s: %s", c.now.Code, got.Code, recall(got))
		}
		if told.Code != c.toldCode || told.Params().RootCode != c.toldRoots || told.Params().Failures != 2 {
			t.Errorf("%q is told as %s: %s", c.now.Code, told.Code, recall(told))
		}
	}
}

// recall returns what a finding says of the failures before.
func recall(f verdict.Finding) string {
	p := f.Params()
	return fmt.Sprintf("%q %+v", p.RootCode, p.RecentParams)
}

// wallSet returns the same moment by a wall clock that has been set since.
func wallSet(now time.Time, by time.Duration) time.Time {
	wall := reflect.ValueOf(&now).Elem().FieldByName("wall") // 30 bits of nanoseconds, then seconds
	*(*uint64)(wall.Addr().UnsafePointer()) += uint64(by/time.Second) << 30
	return now
}

// The counts do not depend on the wall clock. What was before a sleep, which the monotonic clock may
// not count, is forgotten.
func TestWhatComesAndGoesSurvivesAClockThatIsSet(t *testing.T) {
	for _, c := range []struct {
		set  time.Duration
		want bool
	}{{0, true}, {-time.Hour, true}, {5 * time.Minute, true}, {time.Hour, false}} {
		now := time.Now()
		finding := func(o api.Outcome) []verdict.Finding {
			return []verdict.Finding{{Name: api.ServiceAuth, Target: api.ServiceAuth, Direction: api.DirectionOutbound, Outcome: o, Code: map[api.Outcome]catalogue.Code{api.Error: catalogue.AuthRefused}[o], At: now}}
		}
		var m recent
		for _, o := range []api.Outcome{api.OK, api.Error, api.OK, api.Error} {
			now = now.Add(30 * time.Second)
			m.peer(finding(o), time.Time{}, now)
		}
		now = wallSet(now.Add(29*time.Second), c.set)
		if real := time.Until(now.Round(0)) - c.set; real < 2*time.Minute || real > 3*time.Minute {
			t.Fatalf("the wall clock was not set: it is %s ahead", real)
		}
		got := m.shown(finding(api.OK), now)[0]
		if p := got.Params(); (got.Code == catalogue.Intermittent) != c.want || c.want && (p.Checks != 3 || p.Failures != 2) {
			t.Errorf("set by %s: it is shown as %s %q: %s", c.set, got.Outcome, got.Code, recall(got))
		}
		if any, _ := m.suspects(now); any != c.want {
			t.Errorf("set by %s: it is suspected: %v", c.set, any)
		}
		m.peer(finding(api.OK), time.Time{}, now)
		now = now.Add(30 * time.Second)
		m.peer(finding(api.Error), time.Time{}, now)
		got = m.shown(finding(api.Error), now)[0]
		if p := got.Params(); c.want != (p.Failures == 3 && p.Checks == 5) || !c.want && p.Failures != 0 {
			t.Errorf("set by %s: a failure after that is shown as %s", c.set, recall(got))
		}
	}
}

// As long as a failure is remembered, it is counted.
func TestTheLastFailureIsCounted(t *testing.T) {
	now := time.Now()
	round := func(o api.Outcome) []verdict.Finding {
		return []verdict.Finding{{Name: api.ServiceAuth, Target: api.ServiceAuth, Direction: api.DirectionOutbound, Outcome: o, At: now}}
	}
	var m recent
	for _, o := range []api.Outcome{api.OK, api.Error, api.OK, api.Error} {
		m.peer(round(o), time.Time{}, now)
		now = now.Add(29 * time.Second)
	}
	for begin := now; now.Sub(begin) < 2*recentFor; now = now.Add(7 * time.Second) {
		m.peer(round(api.OK), time.Time{}, now)
		if f := m.shown(round(api.OK), now)[0]; f.Code == catalogue.Intermittent && f.Params().Failures == 0 {
			t.Fatalf("after %s: %s", now.Sub(begin), recall(f))
		}
	}
}

// If this host's network comes and goes, that explains a peer that does. A fault that stays does not.
func TestANetworkThatComesAndGoesIsTheRoot(t *testing.T) {
	now := time.Now()
	finding := func(o api.Outcome) verdict.Finding {
		return verdict.Finding{Name: api.ServiceGateway, Target: api.ServiceGateway, Peer: "cloud", Direction: api.DirectionOutbound, Outcome: o, At: now,
			Code: map[api.Outcome]catalogue.Code{api.Error: catalogue.PeerSilent}[o], Rests: []string{verdict.Own(NameNetwork), verdict.Own("exposure")}}
	}
	var m recent
	for _, o := range []api.Outcome{api.OK, api.Error, api.OK, api.Error} {
		now = now.Add(30 * time.Second)
		m.peer([]verdict.Finding{finding(o)}, time.Time{}, now)
	}
	for code, want := range map[catalogue.Code]bool{catalogue.Intermittent: true, "": false} {
		own := []verdict.Finding{
			{Name: NameNetwork, Direction: api.DirectionOwn, Outcome: map[bool]api.Outcome{true: api.Warning, false: api.OK}[want], Code: code},
			{Name: "exposure", Direction: api.DirectionOwn, Outcome: api.Warning, Code: catalogue.PrivateAdvertised},
		}
		got, _ := verdict.Correlate(now, own, m.shown([]verdict.Finding{finding(api.OK)}, now), nil)
		if b := got[0].Because; got[0].Code != catalogue.Intermittent || (b != nil) != want || want && b.Name != NameNetwork {
			t.Errorf("with network %q the root of %s is %+v", code, got[0].Code, b)
		}
	}
}

// A check that has not finished in time is not said to work.
func TestWhatHasNotFinishedDoesNotComeAndGo(t *testing.T) {
	now := time.Now().Add(-2 * time.Minute)
	finding := func(o api.Outcome) verdict.Finding {
		return verdict.Finding{Name: api.ServiceAuth, Target: api.ServiceAuth, Peer: "cloud", Direction: api.DirectionOutbound, Outcome: o, At: now}
	}
	w := &watched{name: "cloud"}
	for _, o := range []api.Outcome{api.OK, api.Error, api.OK, api.Error} {
		now = now.Add(30 * time.Second)
		w.recent.peer([]verdict.Finding{finding(o)}, time.Time{}, now)
	}
	if f, _ := verdict.Find(w.late(Round{}).Findings, api.ServiceAuth); f.Code != catalogue.NotFinished {
		t.Errorf("it is shown as %s %s", f.Outcome, f.Code)
	}
	w.partial = []verdict.Finding{finding(api.OK)}
	if f, _ := verdict.Find(w.late(Round{}).Findings, api.ServiceAuth); f.Code != catalogue.Intermittent {
		t.Errorf("once it has finished it is shown as %s %s", f.Outcome, f.Code)
	}
}

// Keys that keep dialling, and claims about our key, are remembered for some minutes anyway.
func TestWhatIsRememberedAnywayDoesNotComeAndGo(t *testing.T) {
	for code, want := range map[catalogue.Code]bool{catalogue.UnknownKey: false, catalogue.KeyElsewhere: false, catalogue.ResolverSilent: true} {
		var m recent
		now := time.Now()
		m.own(nil, now)
		for range 3 {
			now = now.Add(3 * time.Minute)
			m.own([]verdict.Finding{{Name: "a", Direction: api.DirectionOwn, Outcome: api.Warning, Code: code, At: now}}, now)
			now = now.Add(3 * time.Minute)
			m.own([]verdict.Finding{{Name: "network", Direction: api.DirectionOwn, Outcome: api.OK, At: now}}, now)
		}
		if got := len(m.shown(nil, now)) > 0; got != want {
			t.Errorf("%s comes and goes: %v", code, got)
		}
	}
}

// While the path finder's probes save rounds, what comes and goes is forgotten in time, and whoever
// follows the verdicts hears of it.
func TestWhatComesAndGoesEndsWithoutARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := newReporting(t), &disturbance{fails: outages(40*time.Second, 0, 2*time.Minute)}
		atPings(r, d)
		changes := make(chan string, 1)
		r.opts.FullInterval = 24 * time.Hour
		r.opts.Changed = func(string) {
			select {
			case changes <- "":
			default:
			}
		}
		r.SetPeers([]string{"cloud"})
		time.Sleep(time.Minute)
		d.set(true)
		r.watch(t, api.ServiceGateway, comesAndGoes, 4*time.Minute)
		f := r.Finding("cloud", api.ServiceGateway)
		failed, pings := f.At.Add(-f.Params().LastFailure), 0
		for is := comesAndGoes; is == comesAndGoes; _, is = r.shownAs(t, api.ServiceGateway) {
			if time.Since(failed) > recentFor+2*defaultInterval {
				t.Fatalf("it is shown %s after the last failure", time.Since(failed))
			}
			r.change(nil, func(f *Facts) { f.Probed = time.Now() })
			pings = r.overlay.pinged()
			select {
			case <-changes:
			default:
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := r.overlay.pinged(); n != pings {
			t.Errorf("it ended with a round")
		}
		select {
		case <-changes:
		default:
			t.Error("nobody heard of it")
		}
		if took := time.Since(failed); took < recentFor {
			t.Errorf("it is forgotten %s after the last failure", took)
		}
	})
}

// A fault that only shows in rounds that do not count, soon after one that did, is not over.
func TestAFailureThatDoesNotCountIsNoEnd(t *testing.T) {
	now := time.Now()
	var w watched
	round := func(o api.Outcome, scheduled bool) []verdict.Finding {
		list := []verdict.Finding{{Name: api.ServiceAuth, Target: api.ServiceAuth, Direction: api.DirectionOutbound, Outcome: o, At: now}}
		w.put(Round{Findings: list}, now)
		w.count(list, time.Time{}, scheduled, now)
		return w.again(now).Findings
	}
	for _, o := range []api.Outcome{api.OK, api.Error, api.OK, api.Error} {
		round(o, true)
		now = now.Add(30 * time.Second)
	}
	checks := 0
	for range 20 {
		if f := round(api.OK, true)[0]; f.Code != catalogue.Intermittent || f.Params().LastFailure > time.Minute {
			t.Fatalf("it is over while it fails: %s", recall(f))
		}
		now = now.Add(recentApart / 2)
		round(api.Error, false)
		now = now.Add(time.Minute - recentApart/2)
		checks++
	}
	now = now.Add(time.Second)
	f := round(api.OK, true)[0]
	if p := f.Params(); p.Checks > checks+4 {
		t.Errorf("rounds that do not count are counted: %s", recall(f))
	}
	now = now.Add(recentFor)
	if f := round(api.OK, true)[0]; f.Code != "" {
		t.Errorf("it is not over: %s", recall(f))
	}
}
