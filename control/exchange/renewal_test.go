package exchange

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel/peer"
)

// forgetful is a store of identities that keeps none, and counts them.
type forgetful struct{ kept int }

func (*forgetful) Identity(peer.PublicKey) (certPEM, keyPEM []byte, ok bool) { return nil, nil, false }

func (f *forgetful) SetIdentity(peer.PublicKey, []byte, []byte) error {
	f.kept++
	return nil
}

// renewing is a gateway whose one peer issues identities.
type renewing struct {
	*Exchange
	t     *testing.T
	m     *roster.Member
	log   bytes.Buffer
	store forgetful
}

func newRenewing(t *testing.T) *renewing {
	g := &renewing{t: t, m: &roster.Member{Name: "cloud", Keys: roster.Keys{Key: peer.PublicKey{1}}}}
	g.Exchange = New(Options{
		Reported: func(string) {}, Ctx: t.Context(), Peers: &roster.Registry{View: roster.NewView(roster.Of(g.m), nil)}, Logger: slog.New(slog.NewTextHandler(&g.log, nil)),
	})
	checks := check.NewRunner(check.Options{})
	t.Cleanup(checks.Close)
	g.Attach(nil, checks)
	return g
}

// keep makes the peer give identities.
func (g *renewing) keep() {
	g.t.Helper()
	g.keepers.stored.store = &g.store
	keeper, err := auth.NewKeeper(auth.KeeperOptions{Peer: g.m.Key, Name: g.m.Name, Store: &g.keepers.stored,
		Request: func(context.Context, []byte) (auth.Grant, error) {
			return auth.Grant{Token: "a.b.c", NotAfter: time.Now().Add(time.Hour)}, nil
		}})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	k := &runningKeeper{key: g.m.Key, keeper: keeper, cancel: cancel, done: make(chan struct{})}
	go func() { defer close(k.done); _ = keeper.Run(ctx) }()
	g.t.Cleanup(k.stop)
	g.keepers.keepers[g.m.Name] = k
}

// want lets the ticker look, and compares how often an identity was stored, and how often
// it was logged that the peer says ours has ended.
func (g *renewing) want(when string, kept, logged int) {
	g.t.Helper()
	synctest.Wait()
	g.replaceRejected(time.Now(), g.m)
	synctest.Wait()
	if got := strings.Count(g.log.String(), "the account of our identity is gone"); g.store.kept != kept || got != logged {
		g.t.Errorf("%s: stored %d times and logged %d times, want %d and %d\n%s", when, g.store.kept, got, kept, logged, &g.log)
	}
}

// A peer can say as often as it likes that our identity has ended: another one is asked for,
// stored and logged a few times at once, then once in renewEvery, and once more for what was
// said meanwhile.
func TestAPeerDoesNotSetThePaceOfItsIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRenewing(t)
		m, want := g.m, g.want
		marks := 0
		tell := func(times int) {
			for range times {
				was := report.Report{Identity: report.MarkOf(fmt.Sprint(marks))}
				marks++
				g.applyReportChanges(m.Key, report.Report{Identity: report.MarkOf(fmt.Sprint(marks))}, was)
			}
		}
		tell(3)
		if g.log.Len() > 0 {
			t.Errorf("a peer that gives us no identity is believed to have ended it:\n%s", &g.log)
		}
		g.keep()
		want("at first", 1, 0)
		for n := range renewAtOnce {
			tell(1)
			want("at a word", 2+n, 1+n)
		}
		for range 100 {
			tell(3)
			time.Sleep(time.Second)
			want("after words that came too often", 1+renewAtOnce, renewAtOnce)
		}
		time.Sleep(renewEvery)
		want("for the words that came too often", 2+renewAtOnce, renewAtOnce)
		time.Sleep(renewEvery)
		want("without another word", 2+renewAtOnce, renewAtOnce)
		tell(1)
		want("after another word", 3+renewAtOnce, 1+renewAtOnce)
		g.keepers.setPeers(&roster.Roster{})
		if len(g.keepers.renewals) > 0 {
			t.Error("the renewals of a peer that is gone are kept")
		}
	})
}

// The account of an identity can be deleted before a report has told of it. What the peer then
// reports is no news: that there is none. But we have one.
func TestAnIdentityThatHangsOnNothingIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRenewing(t)
		g.keep()
		reported := func(mark report.Mark) {
			t.Helper()
			body, err := report.Report{At: time.Now(), Gateway: g.m.Name, Identity: mark}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := g.reports.take(g.m.Key, body); err != nil {
				t.Fatal(err)
			}
		}
		reported(report.NoIdentity)
		g.want("at first", 1, 0)
		time.Sleep(time.Hour / 4)
		g.want("by a report of before the identity came", 1, 0)
		g.keepers.keeper(g.m.Name).Renew()
		g.want("with another identity", 2, 0)
		time.Sleep(time.Second)
		reported(report.NoIdentity)
		time.Sleep(reportsCatchUp - 2*time.Second)
		g.want("while the peer may not have seen its account yet", 2, 0)
		time.Sleep(time.Second)
		g.want("when it must have", 3, 1)
		g.want("again at once", 3, 1)
		reported(report.MarkOf("an account"))
		time.Sleep(2 * renewEvery)
		g.want("with an account", 3, 1)
		reported(report.NoIdentity)
		reported("")
		time.Sleep(2 * renewEvery)
		g.want("with a peer that does not know any more", 3, 1)
	})
}
