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

// What takes long in a process without CPU time is not blamed on others; what others have said
// still counts.
func TestAStarvedProcessBlamesNobodyElse(t *testing.T) {
	served := time.Now()
	for _, c := range []struct {
		delay delay
		roots []string
	}{
		{delay(2 * time.Second), []string{NameDelay, "apiServer", "long silent"}},
		{delay(400 * time.Millisecond), []string{"auth", "apiServer", "gateway", "long silent"}},
	} {
		list := []verdict.Finding{
			{Name: "auth", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.AuthTimeout},
			{Name: "apiServer", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.APIServerRefused},
			{Name: "gateway", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.HandshakeStale, Since: served},
			{Name: "long silent", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.HandshakeStale, Since: served.Add(-1)},
		}
		own := starvation(c.delay.blamed(list, served))
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
	if by := delay(2*time.Second).blamed(well, served); len(starvation(by)) > 0 {
		t.Error("it is told though nothing rests on it")
	}
}

func TestAProcessThatIsServedWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := NewRunner(Options{}).watchDelay()
		time.Sleep(5 * time.Second)
		if d := end(); d != 0 {
			t.Errorf("it waited %s", time.Duration(d))
		}
	})
}

// Nor is such a failure reported to a peer.
func TestAStarvedProcessTellsOfNoFault(t *testing.T) {
	list := []verdict.Finding{{Name: "auth", Direction: api.DirectionOutbound, Outcome: api.Error, Code: catalogue.AuthTimeout}}
	by := delay(2*time.Second).blamed(list, time.Time{})
	found, _ := verdict.Correlate(time.Now(), starvation(by), list, nil)
	if found[0].Outcome != api.Unknown || found[0].Because == nil {
		t.Errorf("got %+v", found[0])
	}
}

// Nor do servers that such a process queried count as silent.
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

// Silence is counted in time in which the process had CPU time, over several rounds, until there is
// an answer. Delays are not counted that way.
func TestAStarvedProcessNamesALongSilence(t *testing.T) {
	var present presence
	now := time.Now()
	// round returns whether the starved process is blamed for the findings of a round of 3 s in
	// which it had CPU time in every third moment.
	round := func(code catalogue.Code, heard time.Time, before []verdict.Finding) (list []verdict.Finding, blamed bool) {
		list = []verdict.Finding{{Name: "gateway", Outcome: api.Error, Code: code, Since: heard}}
		silentSince(now, list, before)
		for range 10 {
			now = now.Add(3 * lookEvery)
			present.saw(now)
			present.saw(now.Add(lookEvery / 2)) // another round looks as well
		}
		return list, delay(2*time.Second).blamed(list, present.since()) > 0
	}
	var last []verdict.Finding
	var heard time.Time
	for i, c := range []struct {
		code   catalogue.Code
		heard  bool // since the last round
		blamed bool
	}{
		{catalogue.Unanswered, true, true}, {catalogue.HandshakeStale, false, true}, {catalogue.NotHeardByPeer, false, false},
		{"", false, false}, {catalogue.NotHeardByPeer, false, true}, {catalogue.NotHeardByPeer, false, true}, {catalogue.NotHeardByPeer, false, false},
		{catalogue.HandshakeStale, true, true}, {catalogue.HandshakeStale, false, true}, {catalogue.HandshakeStale, false, false},
		{catalogue.AuthTimeout, false, true}, {catalogue.AuthTimeout, false, true}, {catalogue.AuthTimeout, false, true}, {catalogue.AuthTimeout, false, true},
	} {
		if c.heard {
			heard = now
		}
		var blamed bool
		if last, blamed = round(c.code, heard, last); blamed != c.blamed {
			t.Errorf("round %d, %s: its own starvation is blamed: %t, want %t", i, c.code, blamed, c.blamed)
		}
	}
}

// Nor does a process that is starved all the time excuse servers for ever.
func TestAStarvedProcessNamesServersThatStaySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := []Server{{Name: "turn.example.net:3478", Address: "192.0.2.1:3478", Err: "no answer"}}
		r := NewRunner(Options{Own: func() Own { return Own{TURN: silent} }})
		defer r.Close()
		want := func(when string, code catalogue.Code) {
			t.Helper()
			r.noted(delay(2 * time.Second))
			i := slices.IndexFunc(r.Own(), verdict.Finding.Faulty)
			if found := r.Own(); i < 0 || found[i].Code != code {
				t.Errorf("%s: got %+v, want %s", when, found, code)
			}
		}
		served := func() {
			end := r.watchDelay()
			time.Sleep(silence + time.Second)
			end()
		}
		served()
		want("at first", catalogue.ProcessStarved)
		time.Sleep(time.Hour)
		want("after an hour in which nobody looked", catalogue.ProcessStarved)
		served()
		want("after it was served for long enough", catalogue.TurnUnreachable)
	})
}
