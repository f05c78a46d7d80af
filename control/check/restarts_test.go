package check

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

func TestStartsThatAreACrashLoop(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		name   string
		ago    []time.Duration // when each start was seen
		starts int             // 0: none
	}{
		{"never seen", nil, 0},
		{"always there", []time.Duration{time.Hour}, 0},
		{"an upgrade and a rollback", []time.Duration{time.Hour, 2 * m, 30 * s}, 0},
		{"three starts, of which the first was there before", []time.Duration{3 * m, 2 * m, 30 * s}, 0},
		{"three starts within minutes", []time.Duration{time.Hour, 3 * m, 2 * m, 30 * s}, 3},
		{"pauses that double", []time.Duration{time.Hour, 9 * m, 520 * s, 460 * s, 300 * s}, 4},
		{"starts of a day", []time.Duration{20 * time.Hour, 12 * time.Hour, 3 * time.Hour, 30 * s}, 0},
		{"two upgrades of two replicas", []time.Duration{time.Hour, 330 * s, 290 * s, 60 * s, 20 * s}, 0},
		{"two upgrades of three replicas", []time.Duration{time.Hour, 8 * m, 450 * s, 410 * s, 100 * s, 60 * s, 20 * s}, 0},
		{"three upgrades of two replicas", []time.Duration{time.Hour, 9 * m, 500 * s, 300 * s, 260 * s, 60 * s, 20 * s}, 6},
		{"a crash loop with constant pauses", []time.Duration{time.Hour, 25 * s, 20 * s, 15 * s, 10 * s, 5 * s}, 5},
		{"one that has run for long since", []time.Duration{time.Hour, 200 * s, 180 * s, 160 * s}, 0},
	} {
		now := time.Now()
		var f Facts
		for i, ago := range c.ago {
			f.Boots, f.BootsAt = append(f.Boots, uint64(i+1)), append(f.BootsAt, now.Add(-ago))
		}
		var p catalogue.Params
		if is := f.crashLoop(now, &p); is != (c.starts > 0) || is && p.Starts != c.starts {
			t.Errorf("%s: a crash loop is %t, with %d starts, want %d", c.name, is, p.Starts, c.starts)
		}
	}
}

// While the peer's gateway runs between two starts, everything works but that. The finding ends by
// itself.
func TestACrashLoopIsShownBetweenTwoStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		now := time.Now()
		f.set(func(x *Facts) {
			x.Boots, x.BootsAt = []uint64{1, 2, 3, 4}, []time.Time{now.Add(-time.Hour), now.Add(-90 * time.Second), now.Add(-time.Minute), now.Add(-30 * time.Second)}
		})
		f.SetPeers([]string{"cloud"})
		f.want(t, "between two starts", "ok ok ok")
		r, found := verdict.Find(f.Findings("cloud"), NameRestarts)
		if v := r.Verdict(); !found || v.Verdict != api.Warning || v.Code != string(catalogue.PeerRestarts) {
			t.Fatalf("got %+v", v)
		}
		f.set(func(x *Facts) { x.Probed = time.Now() })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if r, found := verdict.Find(f.Findings("cloud"), NameRestarts); found {
			t.Errorf("it has run for minutes: %+v", r.Verdict())
		}
	})
}
