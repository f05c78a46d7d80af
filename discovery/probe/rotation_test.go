package probe

import (
	"math/rand/v2"
	"testing"
)

func idOf(packet []byte) keyID { return keyID(packet[24:32]) }

func initialID(s *side) keyID { return s.peers[s.other].out.initial.id }

func TestKeyIDsAreRotated(t *testing.T) {
	a, b := newPair(t)
	uses := make(map[keyID]int)
	for range 10 * rotateAfter {
		packet := a.request(RequestOptions{})
		uses[idOf(packet)]++
		a.takes(b.takes(packet, Request).Reply, Response)
	}
	if n := uses[initialID(a)]; n != 1 {
		t.Errorf("the initial id was used %d times, want for the first request alone", n)
	}
	if len(uses) != 11 {
		t.Errorf("%d ids were used, want the initial one and 10", len(uses))
	}
	for id, n := range uses {
		if n > rotateAfter {
			t.Errorf("id %x was used %d times, want %d at most", id, n, rotateAfter)
		}
	}
	if n := len(b.byID); n != 4 {
		t.Errorf("%d ids are accepted, want 4", n)
	}
}

func TestRotateChangesTheIDAtOnce(t *testing.T) {
	a, b := newPair(t)
	exchange(a, b)
	for range 5 {
		before := a.request(RequestOptions{})
		a.takes(b.takes(before, Request).Reply, Response)
		a.Rotate()
		after := a.request(RequestOptions{})
		if idOf(after) == idOf(before) || idOf(after) == initialID(a) {
			t.Errorf("id %x follows %x", idOf(after), idOf(before))
		}
		a.Rotate() // not acknowledged yet, so it waits
		still := a.request(RequestOptions{})
		if idOf(still) != idOf(after) {
			t.Errorf("id %x follows %x, which nobody has acknowledged", idOf(still), idOf(after))
		}
		a.takes(b.takes(still, Request).Reply, Response)
		next := a.request(RequestOptions{})
		if idOf(next) == idOf(after) {
			t.Error("the rotation that had to wait was forgotten")
		}
		b.takes(after, Request) // the previous id is still accepted
		a.takes(b.takes(next, Request).Reply, Response)
	}
}

// Whatever is lost, late, or forgotten by a restart: once nothing is lost any more, an exchange
// succeeds before the fifth request.
func TestTheSidesNeverGetOutOfStep(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		a, b := newPair(t)
		boots := map[*side]uint64{a: 1, b: 1}
		for range 30 {
			loss := []float64{0, 0.1, 0.5, 0.9, 1}[rng.IntN(5)]
			var late [][]byte // requests that others have overtaken
			for range rng.IntN(3 * rotateAfter) {
				from, to := a, b
				if rng.IntN(2) == 0 {
					from, to = b, a
				}
				packet := from.request(RequestOptions{})
				if rng.Float64() < loss {
					late = append(late, packet)
					continue
				}
				r, _ := to.Handle(packet, source)
				if r.Reply != nil && rng.Float64() >= loss {
					from.Handle(r.Reply, source)
				}
			}
			for _, packet := range late {
				if rng.IntN(2) == 0 {
					a.Handle(packet, source)
					b.Handle(packet, source)
				}
			}
			switch s := []*side{a, b}[rng.IntN(2)]; rng.IntN(4) {
			case 0:
				boots[s]++
				s.restart(boots[s])
			case 1:
				s.Rotate()
			}
			succeeds(t, seed, a, b)
			succeeds(t, seed, b, a)
			if len(a.byID) > 4 || len(b.byID) > 4 {
				t.Fatalf("seed %d: %d and %d ids are accepted, want 4 at most", seed, len(a.byID), len(b.byID))
			}
		}
	}
}

// succeeds fails the test unless one of the next requests is answered.
func succeeds(t *testing.T, seed uint64, from, to *side) {
	t.Helper()
	const tries = fallbackAfter + 2
	for range tries {
		r, _ := to.Handle(from.request(RequestOptions{}), source)
		if r, _ = from.Handle(r.Reply, source); r.Kind == Response {
			return
		}
	}
	t.Fatalf("seed %d: %d requests got no answer", seed, tries)
}

func TestRestartWithAHigherBootID(t *testing.T) {
	a, b := newPair(t)
	if r, _ := exchange(a, b); r.Rebooted {
		t.Error("the first request ever counts as a restart")
	}
	exchange(b, a)
	exchange(b, a)
	captured := a.request(RequestOptions{})
	a.restart(9)
	r, _ := exchange(a, b)
	if !r.Rebooted || r.BootID != 9 {
		t.Errorf("the first request after the restart is %+v, want it to say so", r)
	}
	if r, _ := exchange(a, b); r.Rebooted {
		t.Error("the second request after the restart says so again")
	}
	if r, ok := b.Handle(captured, source); r.Kind != Drop || r.Reply != nil || ok && r.Reason != ReasonStaleBoot {
		t.Errorf("a request from before the restart is handled as %+v", r)
	}
	// b knows that a has forgotten its key ids, and uses the initial one at once.
	if packet := b.request(RequestOptions{}); idOf(packet) != initialID(b) {
		t.Error("the restarted peer is asked by an id that it does not know")
	} else {
		a.takes(packet, Request)
	}
}

func TestASilentRestartIsOvercome(t *testing.T) {
	a, b := newPair(t)
	exchange(b, a)
	exchange(b, a)
	a.restart(2) // and sends nothing itself
	for range fallbackAfter {
		a.ignores("an id from before the restart", b.request(RequestOptions{}))
	}
	exchange(b, a)
	packet := b.request(RequestOptions{})
	if idOf(packet) == initialID(b) {
		t.Error("the initial id is still used after it was answered")
	}
	a.takes(packet, Request)
}

func TestRestartWithTheSameBootID(t *testing.T) {
	a, b := newPair(t)
	for range 3 {
		exchange(a, b)
	}
	a.restart(1)
	for range 3 {
		if r := b.takes(a.request(RequestOptions{}), Drop); r.Reason != ReasonReplay {
			t.Errorf("dropped as %q, want a replay", r.Reason)
		}
	}
	if r, _ := exchange(a, b); r.Rebooted { // the counter has caught up
		t.Error("an equal boot id counts as a restart")
	}
}

func TestRestartWithALowerBootID(t *testing.T) {
	a, b := newPair(t)
	a.restart(5)
	exchange(a, b)
	a.restart(4)
	for range 3 {
		if r := b.takes(a.request(RequestOptions{}), Drop); r.Reason != ReasonStaleBoot {
			t.Errorf("dropped as %q, want a stale boot id", r.Reason)
		}
	}
	exchange(b, a) // the other direction still works

	b.SetBootID(b.other, 4) // stated inside the tunnel
	if r, _ := exchange(a, b); r.Rebooted || r.BootID != 4 {
		t.Errorf("after the tunnel told the boot id, the request is %+v", r)
	}
	exchange(a, b)
	replay := a.request(RequestOptions{})
	b.takes(replay, Request)
	b.SetBootID(b.other, 4) // again, which changes nothing
	b.takes(replay, Drop)
	b.SetBootID(newKey(t).Public(), 4)
}

func TestGenerationsWrap(t *testing.T) {
	a, b := newPair(t)
	o := &a.peers[a.other].out
	o.generation = 0xfffe
	o.current = a.peers[a.other].generation(true, 1, o.generation)
	for range 4 {
		exchange(a, b)
		a.Rotate()
	}
	if o.generation >= 0xfffe {
		t.Errorf("generation is %d, want it past the wrap", o.generation)
	}
}

func TestTheCounterDoesNotWrap(t *testing.T) {
	a, b := newPair(t)
	a.peers[a.other].out.counter = maxCounter - 1
	exchange(a, b)
	if packet, _, err := a.Request(a.other, RequestOptions{}); err == nil {
		t.Errorf("got % x, want an error", packet)
	}
}
