package check

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// A path that is interrupted at regular intervals is told as such with its period, while it works and
// while it does not, and not as a peer that stopped answering.
func TestAPathThatIsInterruptedRegularlyIsToldWithItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		now := time.Now()
		f.SetPeers([]string{"cloud"})
		f.want(t, "before", "ok ok ok")
		f.set(func(x *Facts) {
			x.Probed = now.Add(time.Hour) // so that rounds are skipped
			x.Path.Interruptions = Interruptions{Times: 9, Period: 25 * time.Second, Apart: 50 * time.Second, Longest: 8 * time.Second,
				First: now.Add(-4 * time.Minute), Last: now.Add(-10 * time.Second)}
		})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		r, found := verdict.Find(f.Findings("cloud"), NameInterruptions)
		if v := r.Verdict(); !found || v.Verdict != api.Warning || v.Code != string(catalogue.PathInterrupted) || !strings.Contains(v.Cause, "about every 25s, for up to 8s") ||
			!strings.Contains(v.Fix, "ip -ts monitor") || !strings.Contains(v.Fix, "keepalive") {
			t.Fatalf("got %+v", v)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if r, found := verdict.Find(f.Findings("cloud"), NameInterruptions); found {
			t.Errorf("it has worked for minutes: %+v", r.Verdict())
		}
	})
}

// An interruption that lasts far longer than those before is none of them.
func TestALongSilenceAfterInterruptionsIsASilence(t *testing.T) {
	for silence, want := range map[time.Duration]catalogue.Code{12 * time.Second: catalogue.PathInterrupted, 2 * time.Minute: catalogue.HandshakeStale} {
		now := time.Now()
		f := Facts{Name: "cloud", Address: netip.MustParseAddr("fd12::1"), Endpoints: []string{publicCloud}, NoPath: "none of 1 address answers", PathLost: now.Add(-silence), LastHandshake: now.Add(-5 * time.Minute)}
		f.Probed = now.Add(-silence)
		f.Path.Interruptions = Interruptions{Times: 9, Period: 5 * time.Minute, Apart: 5 * time.Minute, Longest: 8 * time.Second, First: now.Add(-time.Hour), Last: now.Add(-5 * time.Minute)}
		r := begin(api.ServiceGateway, api.ServiceGateway, f)
		if got := r.judge(evidenceOf(f, now, now)); got.Code != want {
			t.Errorf("silent for %v: %s, want %s", silence, got.Code, want)
		}
	}
}
