package check

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/verdict"
)

// Reports rely on checks being no older than report.RenewAfter. A full round that is due takes place
// in the next round.
func TestAVerdictIsRenewedBeforeAReportIs(t *testing.T) {
	rounds := float64((fullRounds + 1) * defaultInterval)
	if oldest := time.Duration(rounds * (1 + jitter)); oldest > report.RenewAfter {
		t.Errorf("verdicts get %s old, reports are renewed after %s", oldest, report.RenewAfter)
	}
}

// fixture is a runner with one healthy peer, cloud.
type fixture struct {
	*Runner
	overlay *overlay
	log     *syncBuffer

	mu    sync.Mutex
	facts Facts
	known bool
}

// syncBuffer is a log that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{overlay: newOverlay(t), log: &syncBuffer{}, facts: facts(), known: true}
	a := newAuthorities(t, catalogue.DefaultServerName)
	f.facts.CA, f.facts.Identity, f.facts.Offers = a.serving.CertPEM(), a.identity, nil
	f.overlay.pings(func() error { return nil })
	f.overlay.on(api.PortAuth, says(body(`{"version":"1.0","name":"cloud","offers":["auth","apiServer"]}`)))
	f.overlay.on(api.PortAPIServer, secure(a.conf, says(body("ok"))))
	f.Runner = NewRunner(Options{Dial: f.overlay.Dial, Ping: f.overlay.Ping,
		Facts: func(name string) (Facts, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.facts, f.known && name == f.facts.Name
		},
		OnHello: func(_ string, h auth.Hello) { f.set(func(x *Facts) { x.Offers = h.Offers }) },
		Logger:  slog.New(slog.NewTextHandler(f.log, nil))})
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) set(change func(*Facts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.facts)
}

// Targets returns the last verdicts on a peer.
func (f *fixture) Targets(peer string) api.Targets {
	return verdict.Targets(f.Findings(peer), verdict.Inside)
}

// outcomes returns "gateway auth apiServer" of the last report.
func (f *fixture) outcomes() string {
	t := f.Targets("cloud")
	return string(t.Gateway.Verdict) + " " + string(t.Auth.Verdict) + " " + string(t.APIServer.Verdict)
}

func (f *fixture) want(t *testing.T, when, outcomes string) {
	t.Helper()
	synctest.Wait()
	if got := f.outcomes(); got != outcomes {
		t.Errorf("%s: got %s, want %s", when, got, outcomes)
	}
}

func TestVerdictsAreUnknownBeforeTheFirstResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.want(t, "before the peer is known", "unknown unknown unknown")
		f.overlay.pings(nil) // hangs
		f.SetPeers([]string{"cloud"})
		f.want(t, "during the first round", "unknown unknown unknown")
		if f.Targets("cloud").Gateway.CheckedAt != nil {
			t.Error("a verdict that does not exist has a time")
		}
	})
}

func TestPeersAreCheckedAtOnceAndThenOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.SetPeers([]string{"cloud"})
		f.want(t, "at once", "ok ok ok")
		for _, res := range f.Findings("cloud") {
			if res.Target != api.ServiceGateway && res.Address == "" { // which the other way's verdict may name
				t.Errorf("it is not known where %s was asked", res.Name)
			}
		}
		for range 20 {
			f.set(func(x *Facts) { x.LastHandshake = time.Now() }) // one ping is enough
			before := f.overlay.pinged()
			time.Sleep(36*time.Second + time.Millisecond) // interval and its jitter
			synctest.Wait()
			if n := f.overlay.pinged() - before; n < 1 || n > 2 {
				t.Fatalf("%d rounds in 36 s, want one or two", n)
			}
		}
	})
}

// An idle peer whose path is probed is not pinged in addition, until the probes end.
func TestWhatProbesShowIsNotPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		began := time.Now()
		probing := true
		f.opts.Facts = func(string) (Facts, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			x := f.facts
			x.Probed = began
			if probing {
				x.Probed = time.Now().Add(-20 * time.Second)
			}
			x.LastHandshake = time.Now() // one ping is enough
			return x, true
		}
		f.SetPeers([]string{"cloud"})
		f.want(t, "at once", "ok ok ok")
		time.Sleep(4*time.Minute - time.Second) // five minutes less their jitter
		synctest.Wait()
		if n := f.overlay.pinged(); n != 1 {
			t.Errorf("%d pings in 4 min of probes, want the first round's alone", n)
		}
		f.mu.Lock()
		probing = false
		f.mu.Unlock()
		f.overlay.pings(func() error { return context.DeadlineExceeded })
		time.Sleep(45 * time.Second) // the interval, its jitter and the check's own time
		f.want(t, "when the probes have ended and nothing answers", "error unknown unknown")
	})
}

// The rounds of many peers begin together, at most once a second.
func TestRoundsOfManyPeersBeginTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.opts.Facts = func(string) (Facts, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			x := f.facts
			x.LastHandshake = time.Now() // one ping is enough
			return x, true
		}
		var names []string
		for i := range 60 {
			names = append(names, fmt.Sprintf("peer-%d", i))
		}
		f.SetPeers(names)
		time.Sleep(2 * time.Minute)
		began, at := time.Now(), map[time.Duration]bool{}
		f.overlay.pings(func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			at[time.Since(began)] = true
			return nil
		})
		before := f.overlay.pinged()
		time.Sleep(time.Minute)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := f.overlay.pinged() - before; n < 60 || len(at) > 61 {
			t.Errorf("%d rounds at %d moments in a minute, want one of each of 60 peers at least, and one moment a second at most", n, len(at))
		}
	})
}

func TestServicesAreAskedSeldomWhileAllIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.SetPeers([]string{"cloud"})
		f.want(t, "at once", "ok ok ok")
		first := *f.Targets("cloud").Auth.CheckedAt
		time.Sleep(4*time.Minute - time.Second) // five minutes less their jitter
		f.want(t, "before the next full round", "ok ok ok")
		got := f.Targets("cloud")
		if n := f.overlay.dialled(api.PortAuth); n != 1 {
			t.Errorf("auth was asked %d times in 4 min, want once", n)
		}
		if !got.Auth.CheckedAt.Equal(first) {
			t.Error("a verdict that was kept claims to be new")
		}
		if age := time.Since(*got.Gateway.CheckedAt); age > 36*time.Second {
			t.Errorf("the gateway was last checked %s ago", age)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := f.overlay.dialled(api.PortAPIServer); n < 10 || n > 17 {
			t.Errorf("the API server was asked %d times in 64 min, want about 13", n)
		}
	})
}

func TestServicesAreAskedAtOnceWhenSomethingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.SetPeers([]string{"cloud"})
		f.want(t, "at first", "ok ok ok")
		asked := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if n := f.overlay.dialled(api.PortAPIServer); n != want {
				t.Errorf("%s: the API server was asked %d times, want %d", when, n, want)
			}
		}
		time.Sleep(time.Minute)
		asked("while all is well", 1)
		f.Wake("cloud")
		asked("after a wake", 2)
		if _, err := f.Check(t.Context(), "cloud"); err != nil {
			t.Fatal(err)
		}
		asked("on demand", 3)
		f.overlay.pings(func() error { return errLost })
		time.Sleep(time.Minute)
		f.want(t, "with the gateway down", "error unknown unknown")
		asked("with the gateway down", 3)
		f.overlay.pings(func() error { return nil })
		time.Sleep(36*time.Second + time.Millisecond)
		f.want(t, "after recovery", "ok ok ok")
		asked("after recovery", 4)
	})
}

func TestWhatIsNotOfferedIsAskedAboutInFullRoundsAndWhenThePeerTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set(func(x *Facts) { x.TellsOffers = true })
		without, with := `{"version":"1.0","name":"cloud","offers":["auth"]}`, `{"version":"1.0","name":"cloud","offers":["auth","apiServer"]}`
		f.overlay.on(api.PortAuth, says(body(without)))
		f.SetPeers([]string{"cloud"})
		f.want(t, "without the grant", "ok ok off")
		before := f.overlay.dialled(api.PortAuth)
		time.Sleep(3 * time.Minute)
		if n := f.overlay.dialled(api.PortAuth) - before; n != 0 {
			t.Errorf("asked %d times in 3 min, want not once", n)
		}
		f.overlay.on(api.PortAuth, says(body(with)))
		time.Sleep(4 * time.Minute)
		f.want(t, "a full round after the grant", "ok ok ok")
		f.overlay.on(api.PortAuth, says(body(without)))
		f.Wake("cloud")
		f.want(t, "told that it was taken", "ok ok off")
		f.overlay.on(api.PortAuth, says(body(with)))
		f.Wake("cloud")
		f.want(t, "told of the grant", "ok ok ok")
	})
}

// A peer with a version that does not announce its offers is asked each round.
func TestAPeerThatDoesNotTellIsAskedWhatItOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.overlay.on(api.PortAuth, says(body(`{"version":"1.0","name":"cloud","offers":["auth"]}`)))
		f.SetPeers([]string{"cloud"})
		f.want(t, "without the grant", "ok ok off")
		time.Sleep(3 * time.Minute)
		f.want(t, "after minutes", "ok ok off")
		f.overlay.on(api.PortAuth, says(body(`{"version":"1.0","name":"cloud","offers":["auth","apiServer"]}`)))
		time.Sleep(40 * time.Second) // an interval with its jitter
		f.want(t, "one interval after the grant", "ok ok ok")
	})
}

func TestAVerdictThatIsNotOkIsNeverOlderThanARound(t *testing.T) {
	for name, answer := range map[string]string{
		"an error":         status("500 Internal Server Error"),
		"a redirection":    "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
		"no authorization": status("401 Unauthorized"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				a := newAuthorities(t, catalogue.DefaultServerName)
				f.set(func(x *Facts) { x.CA, x.Identity = a.serving.CertPEM(), a.identity })
				f.overlay.on(api.PortAPIServer, secure(a.conf, says(answer)))
				f.SetPeers([]string{"cloud"})
				time.Sleep(brokenFor) // long after retries have slowed down
				synctest.Wait()
				if v := f.Targets("cloud").APIServer; v.Verdict == api.OK {
					t.Fatalf("the API server is ok: %+v", v)
				}
				f.overlay.on(api.PortAPIServer, secure(a.conf, says(body("ok"))))
				time.Sleep(36*time.Second + time.Millisecond) // an interval with its jitter
				f.want(t, "one interval after it was fixed", "ok ok ok")
			})
		})
	}
}

func TestAFailureIsTriedAgainSoonerAndIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.SetPeers([]string{"cloud"})
		f.want(t, "at first", "ok ok ok")
		f.overlay.on(api.PortAuth, says(status("500 Oops")))
		f.Wake("cloud")
		f.want(t, "after the failure", "ok error ok")

		before := f.overlay.dialled(api.PortAuth)
		time.Sleep(6*time.Second + time.Millisecond) // 5 s and its jitter
		synctest.Wait()
		if n := f.overlay.dialled(api.PortAuth) - before; n != 1 {
			t.Errorf("%d rounds in the 6 s after a failure, want 1", n)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := f.overlay.dialled(api.PortAuth) - before; n < 16 || n > 32 {
			t.Errorf("%d rounds in 10 min of failure, want about 22", n)
		}
		if n := strings.Count(f.log.String(), string(catalogue.AuthHTTP)); n != 1 {
			t.Errorf("%d warnings with %s, want 1:\n%s", n, catalogue.AuthHTTP, f.log)
		}
	})
}

// In the first seconds of a silence its cause cannot be known, so the check is repeated soon.
func TestWhatIsTentativeIsLookedAtAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var rounds atomic.Int32
		f.opts.Changed = func(string) { rounds.Add(1) }
		f.SetPeers([]string{"cloud"})
		f.want(t, "at first", "ok ok ok")
		first := rounds.Load()
		f.overlay.pings(nil)
		f.set(func(x *Facts) { x.LastHandshake, x.NoPath = time.Now().Add(-time.Minute), "" })
		f.Wake("cloud")
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(silence + time.Millisecond)
		f.want(t, "after a round", "error unknown unknown")
		pass(lookAgain + lookAgain/5 + silence)
		if n := rounds.Load() - first; n != 2 {
			t.Errorf("%d rounds where a tentative one was to be followed by another at once, want 2", n)
		}
		before := rounds.Load()
		pass(10 * time.Minute)
		if n := rounds.Load() - before; n < 16 || n > 36 {
			t.Errorf("%d rounds in 10 min in which it stays tentative, want about 24", n)
		}
	})
}

func TestAFailingGatewayIsTheOnlyRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.SetPeers([]string{"cloud"})
		f.want(t, "at first", "ok ok ok")
		f.overlay.pings(nil)
		dialled := f.overlay.dialled(api.PortAuth)
		rep, err := f.Check(t.Context(), "cloud")
		if err != nil {
			t.Fatal(err)
		}
		f.want(t, "with the gateway down", "error unknown unknown")
		got := verdict.Targets(rep.Findings, verdict.Inside)
		for _, v := range []api.Verdict{got.Auth, got.APIServer} {
			if v.Code != "" || !strings.Contains(v.Cause, string(catalogue.Unanswered)) || v.CheckedAt == nil {
				t.Errorf("a dependent verdict must point at the root and have no code: %+v", v)
			}
		}
		if f.overlay.dialled(api.PortAuth) != dialled {
			t.Error("auth was dialled while the gateway is down")
		}
		f.overlay.pings(func() error { return nil })
		f.Wake("cloud")
		f.want(t, "after recovery", "ok ok ok")
	})
}

// Before the first hello it is not known which authority the peer announces, so a certificate of an
// unknown one shows nothing while auth fails.
func TestAnUnknownAuthorityIsNoFaultBeforeAHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		a := newAuthorities(t, catalogue.DefaultServerName)
		f.set(func(x *Facts) { x.Offers, x.CA = nil, nil })
		f.overlay.on(api.PortAPIServer, secure(a.conf, says(body("ok"))))
		f.overlay.on(api.PortAuth, nil)
		f.SetPeers([]string{"cloud"})
		f.want(t, "before a hello", "ok error unknown")
	})
}

func TestAMissingIdentityIsTheFaultOfAuthWhileThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set(func(x *Facts) { x.Identity = nil })
		a := newAuthorities(t, catalogue.DefaultServerName)
		f.set(func(x *Facts) { x.CA = a.serving.CertPEM() })
		f.overlay.on(api.PortAPIServer, secure(a.conf, says(status("401 Unauthorized"))))
		f.SetPeers([]string{"cloud"})
		f.want(t, "with auth well", "ok ok error")
		f.overlay.on(api.PortAuth, nil)
		f.Wake("cloud")
		f.want(t, "with auth down", "ok error unknown")
		if v := f.Targets("cloud").APIServer; !strings.Contains(v.Cause, string(catalogue.AuthRefused)) {
			t.Errorf("the cause does not name the root: %s", v.Cause)
		}
	})
}

func TestWhatIsNotOfferedIsOffAlsoWhileTheGatewayIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.overlay.on(api.PortAuth, says(body(`{"version":"1.0","name":"cloud","offers":["auth"]}`)))
		f.SetPeers([]string{"cloud"})
		f.want(t, "with the gateway up", "ok ok off")
		f.overlay.pings(nil)
		if _, err := f.Check(t.Context(), "cloud"); err != nil {
			t.Fatal(err)
		}
		f.want(t, "with the gateway down", "error unknown off")
	})
}

func TestAPeerThatStaysIsNotCheckedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.SetPeers([]string{"cloud"})
		f.want(t, "at first", "ok ok ok")
		before := f.overlay.dialled(api.PortAuth)
		f.SetPeers([]string{"cloud", "edge"})
		f.want(t, "after a reload", "ok ok ok")
		if f.overlay.dialled(api.PortAuth) != before {
			t.Error("a reload that did not concern the peer checked it again")
		}
		f.SetPeers(nil)
		f.want(t, "after its removal", "unknown unknown unknown")
		if _, err := f.Check(t.Context(), "cloud"); err == nil {
			t.Error("a removed peer was checked")
		}
	})
}

func TestRemovalAndCloseEndAHangingCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.overlay.pings(nil)
		f.SetPeers([]string{"cloud"})
		synctest.Wait()
		result := make(chan error, 1)
		go func() {
			_, err := f.Check(context.Background(), "cloud")
			result <- err
		}()
		synctest.Wait()
		start := time.Now()
		f.SetPeers(nil)
		if err := <-result; err == nil {
			t.Error("a check of a removed peer gave a report")
		}
		f.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("removal and Close waited %s for a hanging check", took)
		}
	})
}
