package gateway

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
	"github.com/postern-dev/postern/tunnel/peer"
)

// forgetful is a store of identities that keeps none, and counts them.
type forgetful struct{ kept int }

func (*forgetful) Identity(peer.PublicKey) (certPEM, keyPEM []byte, ok bool) { return nil, nil, false }

func (f *forgetful) SetIdentity(peer.PublicKey, []byte, []byte) error {
	f.kept++
	return nil
}

// A peer can say as often as it likes that our identity has ended: another one is asked for,
// stored and logged a few times at once, then once in renewEvery, and once more for what was
// said meanwhile.
func TestAPeerDoesNotSetThePaceOfItsIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const said = "the account of our identity is gone"
		var log bytes.Buffer
		m := &member{name: "cloud", key: peer.PublicKey{1}}
		g := &Gateway{log: slog.New(slog.NewTextHandler(&log, nil)), checks: check.NewRunner(check.Options{})}
		defer g.checks.Close()
		g.roster.Store(&roster{members: []*member{m}, byName: map[string]*member{m.name: m}, byKey: map[peer.PublicKey]*member{m.key: m}})
		g.keepers = newIdentityKeepers(g)
		marks := 0
		tell := func(times int) {
			for range times {
				was := report.Report{Identity: report.MarkOf(fmt.Sprint(marks))}
				marks++
				g.heed(m.key, report.Report{Identity: report.MarkOf(fmt.Sprint(marks))}, was)
			}
		}
		tell(3)
		if log.Len() > 0 {
			t.Errorf("a peer that gives us no identity is believed to have ended it:\n%s", &log)
		}
		store := &forgetful{}
		keeper, err := auth.NewKeeper(auth.KeeperOptions{Peer: m.key, Name: m.name, Store: store,
			Request: func(context.Context, []byte) (auth.Grant, error) {
				return auth.Grant{Token: "a.b.c", NotAfter: time.Now().Add(time.Hour)}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		k := &runningKeeper{key: m.key, keeper: keeper, cancel: cancel, done: make(chan struct{})}
		go func() { defer close(k.done); _ = keeper.Run(ctx) }()
		defer k.stop()
		g.keepers.keepers[m.name] = k
		c := newClockwork(g)
		want := func(when string, kept, logged int) {
			t.Helper()
			synctest.Wait()
			c.replaceRejected(time.Now(), m)
			synctest.Wait()
			if got := strings.Count(log.String(), said); store.kept != kept || got != logged {
				t.Errorf("%s: stored %d times and logged %d times, want %d and %d\n%s", when, store.kept, got, kept, logged, &log)
			}
		}
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
		g.keepers.setPeers(&roster{})
		if len(g.keepers.renewals) > 0 {
			t.Error("the renewals of a peer that is gone are kept")
		}
	})
}
