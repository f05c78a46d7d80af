package paths

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
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
