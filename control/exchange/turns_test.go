package exchange

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel/peer"
)

// However many reports arrive, all peers are looked at once a second at most; and a change that
// nobody tells of is seen in time.
func TestReportsDoNotSetThePaceOfTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &reports{wake: make(chan struct{}, 1), about: map[peer.PublicKey]bool{}}
		var turned atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			turns(ctx, r.wake, func(time.Time, bool) { turned.Add(1) })
		}()
		start := time.Now()
		for time.Since(start) < 10*time.Second {
			r.changed()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := turned.Load(); n < 9 || n > 11 {
			t.Errorf("%d turns in 10 s of reports, want one a second", n)
		}
		time.Sleep(2 * turnPace) // what was asked for last is done
		synctest.Wait()
		n := turned.Load()
		r.changed()
		synctest.Wait()
		if turned.Load() != n+1 { // no time has passed
			t.Error("after a pause a change is not looked at immediately")
		}
		time.Sleep(reportPace)
		synctest.Wait()
		if turned.Load() <= n+1 {
			t.Error("nobody looks without being asked")
		}
		cancel()
		<-done
	})
}

// What becomes of one peer is no reason to look at the others.
func TestATurnLooksAtWhomSomethingHasChangedFor(t *testing.T) {
	one, two := &roster.Member{Name: "one", Keys: roster.Keys{Key: peer.PublicKey{1}}}, &roster.Member{Name: "two", Keys: roster.Keys{Key: peer.PublicKey{2}}}
	x := New(Options{Reported: func(string) {}, Peers: &roster.Registry{View: roster.NewView(roster.Of(one, two), nil)}})
	steps := []struct {
		name    string
		do      func()
		regular bool
		want    []*roster.Member
	}{
		{"nothing", func() {}, false, nil},
		{"a verdict", func() { x.VerdictChanged("two") }, false, []*roster.Member{two}},
		{"after it", func() {}, false, nil},
		{"a verdict twice", func() { x.VerdictChanged("one"); x.VerdictChanged("one") }, false, []*roster.Member{one}},
		{"a peer that is gone", func() { x.VerdictChanged("three"); x.reports.changedFor(peer.PublicKey{3}) }, false, nil},
		{"the roster", func() { x.VerdictChanged("one"); x.reports.changed() }, false, []*roster.Member{one, two}},
		{"after that", func() {}, false, nil},
		{"time", func() {}, true, []*roster.Member{one, two}},
	}
	for _, s := range steps {
		s.do()
		if got := x.reports.members(s.regular); !slices.Equal(got, s.want) {
			t.Errorf("%s: %d members are looked at, want %d", s.name, len(got), len(s.want))
		}
	}
}
