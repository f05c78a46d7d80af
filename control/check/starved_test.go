package check

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// What takes long in a process that does not get the processor is no fault of others; what somebody
// said still is.
func TestAStarvedProcessBlamesNobodyElse(t *testing.T) {
	for _, c := range []struct {
		delay delay
		roots []string
	}{
		{delay(2 * time.Second), []string{NameDelay, "apiServer", "given up"}},
		{delay(400 * time.Millisecond), []string{"auth", "apiServer", "gateway", "given up"}},
	} {
		list := []verdict.Finding{
			{Name: "auth", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.AuthTimeout},
			{Name: "apiServer", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.APIServerRefused},
			{Name: "gateway", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.HandshakeStale, Sure: api.Tentative},
			{Name: "given up", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.HandshakeStale, Sure: api.Likely},
		}
		own := starvation(c.delay.blamed(list))
		var roots []string
		for _, x := range verdict.Report("edge", time.Now(), own, []verdict.Peer{{Name: "cloud", Outbound: list}}, false).Checks {
			if x.Verdict.Verdict == api.Error {
				roots = append(roots, x.Name)
			}
		}
		if !slices.Equal(roots, c.roots) {
			t.Errorf("after %s: the roots are %v, want %v", time.Duration(c.delay), roots, c.roots)
		}
	}
	well := []verdict.Finding{{Name: "gateway", Outcome: api.OK}, {Name: "auth", Outcome: api.Error, Code: catalogue.AuthRefused}}
	if by := delay(2 * time.Second).blamed(well); len(starvation(by)) > 0 {
		t.Error("it is told though nothing rests on it")
	}
}

func TestAProcessThatIsServedWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := watchDelay()
		time.Sleep(5 * time.Second)
		if d := end(); d != 0 {
			t.Errorf("it waited %s", time.Duration(d))
		}
	})
}

// Nor do servers count as silent that such a process asked.
func TestAStarvedProcessBlamesNoServers(t *testing.T) {
	r := NewRunner(Options{Own: func() Own {
		return Own{STUN: []Server{{Name: "stun.example.net:3478", Address: "192.0.2.1:3478", Err: "no answer", Failures: 9}}}
	}})
	defer r.Close()
	for _, c := range []struct {
		waited, ago time.Duration
		want        catalogue.Code
	}{
		{0, 0, catalogue.StunUnreachable},
		{2 * time.Second, 0, catalogue.ProcessStarved},
		{2 * time.Second, starvedFor, catalogue.StunUnreachable},
	} {
		r.own.starved = starved{delay(c.waited), time.Now().Add(-c.ago)}
		var roots []catalogue.Code
		for _, f := range r.Own() {
			if f.Faulty() {
				roots = append(roots, f.Code)
			}
		}
		if !slices.Equal(roots, []catalogue.Code{c.want}) {
			t.Errorf("%s after %s: the roots are %v, want %s", c.ago, c.waited, roots, c.want)
		}
	}
}
