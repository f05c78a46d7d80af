package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// play runs a scene in virtual time, and ends its replicas.
func play(t *testing.T, scene func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { scene(t, newStage(t)) })
}

// settle is enough time for everything that needs no waiting.
const settle = 100 * time.Millisecond

func TestOneIsActiveAndTheOtherStandsBy(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		s.expect("at first", "a")
		time.Sleep(time.Hour)
		s.expect("after an hour", "a")
		if st := a.Status(); st.Role != Active || st.Holder != "a" || time.Since(st.Answered) > a.t.renew {
			t.Errorf("a says %+v", st)
		}
		if st := b.Status(); st.Role != Standby || st.Holder != "a" || time.Since(st.Answered) > a.t.renew || b.Term() != "" {
			t.Errorf("b says %+v", st)
		}
		if !s.marked("a") || s.marked("b") {
			t.Errorf("the labels are %v", s.labels())
		}
	})
}

func TestAReplicaAloneNeedsNobody(t *testing.T) {
	play(t, func(_ *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		s.expect("at once", "a")
	})
}

func TestTogetherTheyAskSeldom(t *testing.T) {
	for name, noWatch := range map[string]bool{"with a watch": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.enter("a", nil)
				defer a.stop()
				b := s.enter("b", func(r *replica, _ *Options) { r.door.noWatch = noWatch })
				defer b.stop()
				time.Sleep(time.Minute)
				before := s.clerk.asked()
				time.Sleep(time.Hour)
				rate := float64(s.clerk.asked()-before) / 3600
				t.Logf("%.3f requests/s", rate)
				if rate > 0.7 {
					t.Errorf("%.2f requests/s, want at most 0.7", rate)
				}
			})
		})
	}
}

func TestAfterACleanEndTheOtherFollowsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		noWatch bool
		within  time.Duration
	}{"with a watch": {false, settle}, "without": {true, timed(DefaultDuration).suspicion + settle}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.enter("a", nil)
				time.Sleep(settle)
				b := s.enter("b", func(r *replica, _ *Options) { r.door.noWatch = c.noWatch })
				defer b.stop()
				a.drain = 20 * time.Second // longer than the lease lasts without a write
				time.Sleep(time.Minute)
				a.stop()
				if s.marked("a") {
					t.Error("a keeps the label")
				}
				time.Sleep(c.within)
				s.expect("after the end of a", "b")
				if s.twice() {
					t.Errorf("both were active: %q", s.story())
				}
			})
		})
	}
}

func TestASilentOneIsReplaced(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		a.kill()
		dead := time.Now()
		for len(s.who()) == 0 && time.Since(dead) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(dead)
		t.Logf("replaced after %v", took)
		if took > DefaultDuration+settle || took < DefaultDuration-a.t.renew {
			t.Errorf("it took %v, want %v from its last write", took, DefaultDuration)
		}
		time.Sleep(settle)
		if s.marked("a") || !s.marked("b") {
			t.Errorf("the labels are %v", s.labels())
		}
		a.door.set(fair) // it was not dead
		time.Sleep(2 * a.t.renew)
		s.expect("later", "b")
		if len(a.ends()) != 1 || !errors.Is(a.ends()[0], ErrLost) {
			t.Errorf("a ended by %v, want %v", a.ends(), ErrLost)
		}
	})
}

func TestWithoutTheAPIServerTheActiveOneGoesOn(t *testing.T) {
	for name, w := range map[string]weather{"refused": refused, "hanging": hangs, "denied": denied} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.enter("a", nil)
				defer a.stop()
				time.Sleep(settle)
				b := s.enter("b", nil)
				defer b.stop()
				time.Sleep(time.Minute)
				for range 5 { // it comes and goes
					a.door.set(w)
					b.door.set(w)
					time.Sleep(3 * time.Minute)
					s.expect("during the outage", "a")
					a.door.set(fair)
					b.door.set(fair)
					time.Sleep(30 * time.Second)
				}
				s.expect("at the end", "a")
				if len(a.ends()) > 0 || len(a.served()) != 1 {
					t.Errorf("a lost its role meanwhile: %v %q", a.ends(), s.story())
				}
			})
		})
	}
}

// If the other replica gets an answer first, the active one still has enough time.
func TestAfterAnOutageTheActiveOneHasItsTime(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		a.door.set(hangs)
		b.door.set(hangs)
		time.Sleep(time.Minute)
		b.door.set(fair)
		time.Sleep(DefaultDuration - a.t.request - a.t.retry - settle)
		a.door.set(fair)
		time.Sleep(time.Minute)
		s.expect("after the outage", "a")
		if len(a.served()) != 1 {
			t.Errorf("a lost its role meanwhile: %q", s.story())
		}
	})
}

func TestOneThatAloneIsCutOffIsReplacedAndEndsInTheEnd(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		a.door.set(refused)
		time.Sleep(DefaultDuration + settle)
		s.expect("cut off", "a", "b")
		a.Supersede("a peer has heard a newer start of this gateway")
		time.Sleep(a.loss + settle)
		s.expect("told by a peer", "b")
		time.Sleep(time.Hour)
		s.expect("later", "b")

		b.door.set(refused)
		a.door.set(fair)
		time.Sleep(DefaultDuration + time.Minute)
		s.expect("nobody tells b", "a", "b")
		time.Sleep(DefaultWithoutAPI - time.Minute)
		s.expect("after 15 min", "a")
		if len(b.ends()) != 1 || !errors.Is(b.ends()[0], ErrLost) {
			t.Errorf("b ended by %v, want %v", b.ends(), ErrLost)
		}
	})
}

// Without a standby, stepping down would end the tunnels for nothing.
func TestOneAloneGoesOnForEver(t *testing.T) {
	for name, c := range map[string]struct {
		others bool // one stands by
		stays  bool // and exists when the API server becomes unreachable
		option time.Duration
		goesOn bool
	}{
		"alone":                {goesOn: true},
		"another stands by":    {others: true, stays: true},
		"another has stood by": {others: true, goesOn: true},
		"told to go on":        {others: true, stays: true, option: -1, goesOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(_ *testing.T, s *stage) {
				a := s.enter("a", func(_ *replica, o *Options) { o.WithoutAPI = c.option })
				defer a.stop()
				time.Sleep(settle)
				if c.others {
					b := s.enter("b", nil)
					defer b.stop()
					time.Sleep(time.Minute)
					if !c.stays {
						b.stop()
					}
					time.Sleep(time.Minute)
					defer b.door.set(fair)
					b.door.set(refused)
				}
				a.door.set(refused)
				defer a.door.set(fair)
				time.Sleep(2 * time.Hour)
				if c.goesOn {
					s.expect("after two hours", "a")
				} else {
					s.expect("after two hours")
				}
			})
		})
	}
}

func TestTheRoleEndsWithinASecondOfTheAnswer(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		s.clerk.edit(func(x *coordinationv1.Lease) { other := "b"; x.Spec.HolderIdentity = &other })
		start := time.Now()
		for len(s.who()) > 0 && time.Since(start) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(start); took > a.t.renew+time.Second {
			t.Errorf("a was active for %v, want at most %v", took, a.t.renew+time.Second)
		}
		if s.marked("a") {
			t.Error("a keeps the label")
		}
	})
}

func TestAContainerThatIsStartedAgainGoesOnAtOnce(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		defer a.stop()
		time.Sleep(settle)
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(time.Minute)
		a.kill()
		again := s.enter("a", nil)
		defer again.stop()
		time.Sleep(settle)
		s.expect("started again", "a")
		if len(again.served()) != 1 || again.served()[0] != a.served()[0] {
			t.Errorf("its term is %v, want %v: nobody else was active", again.served(), a.served())
		}
		time.Sleep(time.Minute)
		s.expect("later", "a")
	})
}

func TestEveryTimeInTheRoleHasATermOfItsOwn(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		seen := map[string]bool{}
		for range 4 {
			for _, name := range []string{"a", "b", "b"} {
				r := s.enter(name, nil)
				time.Sleep(settle)
				r.stop()
				if len(r.served()) != 1 || seen[r.served()[0]] {
					t.Errorf("the term of %s is %v, after %v", name, r.served(), seen)
					return
				}
				seen[r.served()[0]] = true
			}
			s.clerk.edit(nil)
		}
	})
}

func TestWhatOthersDoToTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*coordinationv1.Lease)
		lost bool
	}{
		"a label":     {func(x *coordinationv1.Lease) { x.Labels = map[string]string{"team": "net"} }, false},
		"deletion":    {nil, false},
		"no holder":   {func(x *coordinationv1.Lease) { x.Spec.HolderIdentity = nil }, true},
		"another one": {func(x *coordinationv1.Lease) { other := "x"; x.Spec.HolderIdentity = &other }, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.enter("a", nil)
				defer a.stop()
				time.Sleep(settle)
				s.clerk.edit(c.edit)
				time.Sleep(a.t.renew + settle + a.loss)
				if lost := len(a.ends()) > 0; lost != c.lost {
					t.Errorf("lost: %v, want %v: %q", lost, c.lost, s.story())
				}
				time.Sleep(3 * DefaultDuration) // x never writes
				s.expect("in the end", "a")
				if s.clerk.holder() != "a" {
					t.Errorf("the holder is %q", s.clerk.holder())
				}
			})
		})
	}
}

func TestAnAnswerThatIsLostIsNoOtherHolder(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		time.Sleep(settle)
		for range 10 {
			a.door.set(lost)
			time.Sleep(a.t.renew)
			a.door.set(fair)
			time.Sleep(a.t.renew)
		}
		s.expect("in the end", "a")
		if len(a.served()) != 1 {
			t.Errorf("a lost its role meanwhile: %q", s.story())
		}
		a.stop()
		if s.clerk.holder() != "" {
			t.Errorf("the lease was not given back: %q has it", s.clerk.holder())
		}
	})
}

func TestAGatewayThatFailsGivesTheLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		d := &door{clerk: s.clerk, turning: make(chan struct{})}
		l, err := newLease(d, Options{Name: "postern", Identity: "a"})
		if err != nil {
			t.Fatal(err)
		}
		failure := errors.New("the port is in use")
		if err := l.Run(t.Context(), func(context.Context) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("got %v, want %v", err, failure)
		}
		if s.clerk.holder() != "" {
			t.Errorf("%s still holds it", s.clerk.holder())
		}
	})
}

func TestOptionsThatCannotWork(t *testing.T) {
	for name, o := range map[string]Options{
		"no name":     {Identity: "a"},
		"no identity": {Name: "postern"},
		"too short":   {Name: "postern", Identity: "a", Duration: time.Second},
	} {
		if _, err := newLease(&door{}, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(Options{Name: "postern", Identity: "a"}); err == nil {
		t.Error("no cluster: no error")
	}
}

func TestVigil(t *testing.T) {
	at := func(seconds float64) time.Time { return time.Unix(0, 0).Add(time.Duration(seconds * 1e9)) }
	type answer struct {
		at     float64
		record string
		over   bool
	}
	for name, answers := range map[string][]answer{
		"silent":                {{1, "x", false}, {4, "x", false}, {7, "x", false}, {9, "x", true}},
		"written":               {{1, "x", false}, {4, "y", false}, {8, "y", false}, {11, "z", false}, {15, "z", false}, {19, "z", true}},
		"an outage counts none": {{1, "x", false}, {4, "x", false}, {60, "x", false}, {64, "x", false}, {68, "x", true}},
		"nor two":               {{1, "x", false}, {6, "x", false}, {11, "x", false}, {15, "x", false}, {19, "x", true}},
		"one answer is no time": {{1000, "x", false}},
	} {
		v := silence{timing: timed(8 * time.Second), needed: 8 * time.Second}
		for _, a := range answers {
			if v.heard(at(a.at), a.record); v.over() != a.over {
				t.Errorf("%s: at %v s over is %v, want %v", name, a.at, v.over(), a.over)
			}
			if next := v.next(at(a.at)); !a.over && (!next.After(at(a.at)) || next.Sub(at(a.at)) > v.gap) {
				t.Errorf("%s: at %v s the next look is in %v", name, a.at, next.Sub(at(a.at)))
			}
		}
	}
}

// The gateway's key is known even if its state is lost.
func TestTheKeyOfTheGatewayOutlivesIt(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.enter("a", nil)
		time.Sleep(settle)
		if k := a.PublicKey(); k != "" {
			t.Errorf("at first it is %q", k)
		}
		a.SetPublicKey("one")
		time.Sleep(2 * a.t.renew)
		s.clerk.edit(nil) // and it is written again
		time.Sleep(2 * a.t.renew)
		a.stop()
		b := s.enter("b", nil)
		defer b.stop()
		time.Sleep(settle)
		s.expect("then", "b")
		if k := b.PublicKey(); k != "one" {
			t.Errorf("the next one knows of %q", k)
		}
	})
}
