package lease

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What peers claim ends a role only if it can be true.
func TestPeerSawNewerCountsWhereNobodyElseKnows(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		a.PeerSawNewer("liar", 1)
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		a.PeerSawNewer("liar", 99)
		time.Sleep(time.Minute)
		s.expect("while the API server answers", "a")

		for _, r := range []*replica{a, b} {
			r.door.set(refused)
		}
		time.Sleep(DefaultDuration - a.t.renew - settle)
		a.PeerSawNewer("early", 7) // nobody can have taken the lease yet
		time.Sleep(time.Minute)
		a.PeerSawNewer("liar", 99)
		time.Sleep(time.Minute)
		s.expect("what was wrong before", "a")
		for _, r := range []*replica{a, b} {
			r.door.set(fair)
		}
		time.Sleep(time.Minute)
		s.expect("after the outage", "a")
		if len(a.served()) != 1 {
			t.Errorf("a lost its role meanwhile: %v %q", a.ends(), s.story())
		}

		a.door.set(refused)
		time.Sleep(DefaultDuration + settle)
		s.expect("cut off", "a", "b")
		b.PeerSawNewer("peer", 99)
		a.PeerSawNewer("early", 7)
		a.PeerSawNewer("liar", 98)
		time.Sleep(settle)
		s.expect("told what was wrong before", "a", "b")
		a.PeerSawNewer("peer", 7)
		time.Sleep(a.loss + settle)
		s.expect("told by a peer", "b")
		if ends := a.ends(); len(ends) != 1 || !errors.Is(ends[0], ErrLost) || !strings.Contains(ends[0].Error(), "peer peer") {
			t.Errorf("a ended by %v, want %v that names the peer", ends, ErrLost)
		}
		a.PeerSawNewer("peer", 8)
		time.Sleep(time.Hour)
		s.expect("later", "b")
		a.door.set(fair)
	})
}

// A gateway without a standby could not regain the role without the API server, and no other
// replica would take it. So no claim of a peer ends it, however long the outage is.
func TestPeerSawNewerEndsNobodyWhoIsAlone(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(time.Minute)
		a.door.set(refused)
		for start := uint64(1); start <= 60; start++ {
			time.Sleep(time.Minute)
			a.PeerSawNewer("liar", start)
		}
		s.expect("alone", "a")
		a.door.set(fair)
		time.Sleep(time.Minute)

		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		b.stop()
		time.Sleep(time.Minute)
		a.door.set(refused)
		time.Sleep(time.Minute)
		a.PeerSawNewer("liar", 99)
		time.Sleep(time.Minute)
		s.expect("alone again", "a")
		if len(a.served()) != 1 {
			t.Errorf("a lost its role meanwhile: %v %q", a.ends(), s.story())
		}
		a.door.set(fair)
	})
}

// A replica that took over from a silent one cannot know whether that one is dead.
func TestPeerSawNewerCountsAfterATakeover(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		a.door.set(refused)
		time.Sleep(time.Minute)
		s.expect("cut off", "a", "b")
		b.door.set(refused)
		time.Sleep(time.Minute)
		b.PeerSawNewer("peer", 99)
		time.Sleep(b.loss + settle)
		s.expect("told by a peer", "a")
		for _, r := range []*replica{a, b} {
			r.door.set(fair)
		}
	})
}

// The pod's owner may have been requested while the API server was unreachable.
func TestTheLeaseGetsAnOwnerThatIsLearnedLater(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		s.clerk.edit(func(x *coordinationv1.Lease) {
			if len(x.OwnerReferences) > 0 {
				t.Errorf("it belongs to %v from the start", x.OwnerReferences)
			}
		})
		want := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "postern", UID: "1"}
		a.Own(want)
		time.Sleep(3 * a.t.renew)
		s.clerk.edit(func(x *coordinationv1.Lease) {
			if len(x.OwnerReferences) != 1 || x.OwnerReferences[0] != want {
				t.Errorf("it belongs to %v, want %v", x.OwnerReferences, want)
			}
		})
	})
}
