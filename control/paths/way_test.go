package paths

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

func TestTheHistoryIsInTheOrderOfTime(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	k, j := peer.PublicKey{1}, newJournal()
	j.add(k, at(1), "connected", "")
	j.add(k, at(4), "lost", "")
	got := story(j.of(k), []path.Note{{At: at(0), Event: "selected"}, {At: at(1), Event: "measured"}, {At: at(3), Event: "failed"}})
	var events []string
	for _, e := range got {
		events = append(events, e.Event)
	}
	if want := []string{"selected", "connected", "measured", "failed", "lost"}; !slices.Equal(events, want) {
		t.Errorf("got %q, want %q", events, want)
	}
	if kept := j.of(k); len(kept) != 2 {
		t.Errorf("the journal became %+v", kept)
	}
}

func TestANameWithoutAnAddressIsShownAsSuch(t *testing.T) {
	m := &roster.Member{Name: "cloud"}
	w := Way{
		Found:      true,
		Path:       path.Snapshot{Kind: path.KindNone, Reason: "gone.example.net:51820 cannot be resolved: no such host"},
		Unresolved: []discovery.Unresolved{{Name: "gone.example.net:51820", Reason: "cannot be resolved: no such host"}},
	}
	if state, reason := PeerState(m, w, time.Now()); state != api.StateConnecting || reason != w.Path.Reason {
		t.Errorf("got %s because %q, want the name and why", state, reason)
	}
	want := api.Candidate{Address: "gone.example.net:51820", Source: api.SourceAdvertised, State: "failed", Reason: "cannot be resolved: no such host"}
	if got := w.Candidates(m); !slices.Equal(got, []api.Candidate{want}) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !w.Tried() || !slices.Equal(w.Addresses(), []string{"gone.example.net:51820"}) {
		t.Errorf("tried %v, addresses %q", w.Tried(), w.Addresses())
	}
	w.Unresolved = nil
	if _, reason := PeerState(m, w, time.Now()); !strings.Contains(reason, "must dial us") {
		t.Errorf("without any endpoint: got %q", reason)
	}
}

// A peer that becomes silent stays connected for a while, but is unconfirmed at once.
func TestWhatIsSentWithoutAnAnswerIsDoubt(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	reached := peer.Direct(netip.MustParseAddrPort("192.0.2.1:51820"))
	for name, c := range map[string]struct {
		change func(*Way)
		want   time.Time
	}{
		"nothing is unanswered":        {func(*Way) {}, time.Time{}},
		"probes, for a moment":         {func(w *Way) { w.Path.Unanswered = ago(unansweredProbes - time.Millisecond) }, time.Time{}},
		"probes":                       {func(w *Way) { w.Path.Unanswered = ago(unansweredProbes) }, ago(unansweredProbes)},
		"data, for a moment":           {func(w *Way) { w.Tunnel.Unanswered = ago(unansweredData - time.Millisecond) }, time.Time{}},
		"data":                         {func(w *Way) { w.Tunnel.Unanswered = ago(unansweredData) }, ago(unansweredData)},
		"data, and probes before":      {func(w *Way) { w.Tunnel.Unanswered, w.Path.Unanswered = ago(4*time.Second), ago(5*time.Second) }, ago(5 * time.Second)},
		"there is no path":             {func(w *Way) { w.Path.Selected, w.Path.Since = peer.Path{}, ago(time.Second) }, ago(time.Second)},
		"none, and the tunnel works":   {func(w *Way) { w.Path.Selected, w.Path.Since, w.Carries = peer.Path{}, ago(time.Minute), true }, time.Time{}},
		"it is not connected any more": {func(w *Way) { w.Heard, w.Path.Unanswered = ago(answered+time.Hour), ago(time.Minute) }, time.Time{}},
	} {
		w := Way{Found: true, Heard: ago(10 * time.Second), Path: path.Snapshot{Selected: reached}}
		c.change(&w)
		if got := w.Unconfirmed(now); !got.Equal(c.want) {
			t.Errorf("%s: in doubt since %v, want %v", name, got, c.want)
		}
	}
}

// A path is proven by an answer, also without a session, until a probe has none.
func TestAPathIsProvenWhileProbesAreAnswered(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	answered := now.Add(-5 * time.Second)
	reached := peer.Direct(netip.MustParseAddrPort("192.0.2.1:51820"))
	for name, c := range map[string]struct {
		path path.Snapshot
		want time.Time
	}{
		"answered":                   {path.Snapshot{Selected: reached, Answered: answered}, answered},
		"one has just been sent":     {path.Snapshot{Selected: reached, Answered: answered, Unanswered: now.Add(-time.Second)}, answered},
		"they have no answer":        {path.Snapshot{Selected: reached, Answered: answered, Unanswered: now.Add(-unansweredProbes)}, time.Time{}},
		"no path has been found yet": {path.Snapshot{}, time.Time{}},
	} {
		if got := (Way{Found: true, Path: c.path}).proven(now); !got.Equal(c.want) {
			t.Errorf("%s: proven at %v, want %v", name, got, c.want)
		}
	}
}

// An error counts until a later probe to the same address has caused none.
func TestAnErrorCountsUntilProbesCauseNone(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	to := netip.MustParseAddrPort("192.0.2.1:51820")
	for name, c := range map[string]struct {
		probed netip.AddrPort
		asked  time.Duration // before now; the error came 30 s before
		want   bool
	}{
		"nothing was sent since":       {to, 30 * time.Second, false},
		"a probe just before":          {to, time.Second, false},
		"a probe of the same round":    {to, 26 * time.Second, false},
		"a later one":                  {to, 10 * time.Second, true},
		"a later one, to another port": {netip.MustParseAddrPort("192.0.2.1:4000"), 10 * time.Second, false},
	} {
		w := Way{Path: path.Snapshot{Candidates: []path.PairStatus{{Path: peer.Direct(c.probed), Asked: now.Add(-c.asked)}}}}
		if got := w.passedSince(underlay.Unreachable{To: to, At: now.Add(-30 * time.Second)}, now); got != c.want {
			t.Errorf("%s: passed is %v", name, got)
		}
	}
}

// However many keys dial, few are kept, and the first ones stay.
func TestStrangersAreBounded(t *testing.T) {
	var s strangers
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	nobody := func(peer.PublicKey) bool { return false }
	dial := func(key byte, at time.Time) {
		s.saw([]tunnel.KeySight{{Sight: tunnel.Sight{From: netip.MustParseAddrPort("192.0.2.1:51820"), At: at}, Key: peer.PublicKey{key}}}, at)
	}
	dial(1, now)
	for key := range byte(200) {
		dial(100+key%100, now.Add(time.Second))
	}
	dial(1, now.Add(time.Minute))
	got := s.known(nobody, now.Add(time.Minute))
	if len(got) != strangersKept || got[0].key != (peer.PublicKey{1}) || got[0].last.Sub(got[0].first) != time.Minute {
		t.Errorf("got %d keys, the first %+v", len(got), got[0])
	}
	if got = s.known(nobody, now.Add(time.Second+strangerLife)); len(got) != 1 {
		t.Errorf("%d keys are kept that no longer dial", len(got)-1)
	}
	if got = s.known(func(peer.PublicKey) bool { return true }, now.Add(time.Minute)); len(got) != 0 {
		t.Errorf("got %d keys that are peers' by now", len(got))
	}
	if !s.due(now) || s.due(now.Add(strangersEvery-1)) || !s.due(now.Add(strangersEvery)) {
		t.Error("the initiations are not read once in a while")
	}
}
