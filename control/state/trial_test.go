package state

import (
	"strings"
	"testing"
	"time"
)

// A deadline comes at most its own length after a restart, however far the clock was set back
// meanwhile, and from then on whatever the clock does.
func TestAClockThatWasSetBackPutsOffNoDeadline(t *testing.T) {
	const within = time.Minute
	before := time.Now().Add(24 * time.Hour).Round(0) // by the clock as it was
	dir := two(t)
	s := mustOpen(t, dir)
	if err := s.SetTrial(Trial{Kept: "kept", Tried: "tried", Until: before.Add(within), Within: within}); err != nil {
		t.Fatal(err)
	}
	if until := s.Trial().Until; !strings.Contains(until.String(), " m=") {
		t.Errorf("the clock moves the deadline %v before a restart: it has no monotonic reading", until)
	}
	if err := s.Update(func(p *Peers) error {
		x, _ := p.Get("berlin")
		x.Undo = Undo{At: before.Add(within), Within: within}
		return p.Put(x)
	}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)

	s = mustOpen(t, dir)
	defer mustClose(t, s)
	x, _ := s.Peers().Get("berlin")
	for name, at := range map[string]time.Time{"the configuration's": s.Trial().Until, "the peer's": x.Undo.At} {
		if left := time.Until(at); left > within || left < 0 || !strings.Contains(at.String(), " m=") {
			t.Errorf("%s deadline is %v, in %v; want one within %v, with a monotonic reading", name, at, left, within)
		}
	}
}

// Without a change of the clock, a restart moves no deadline.
func TestARestartMovesNoDeadline(t *testing.T) {
	until := time.Now().Add(time.Minute).Round(0)
	for _, length := range []time.Duration{0, time.Hour} {
		if got := deadline(until, length); !got.Round(0).Equal(until) {
			t.Errorf("with a length of %v it is moved from %v to %v", length, until, got)
		}
	}
}
