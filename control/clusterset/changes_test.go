package clusterset

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
)

// However often a peer changes its services, the changes here are limited, and end with the latest
// state.
func TestServicesThatAlwaysChangeTakeEffectLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(all)
		c := &Clusterset{
			o: Options{Connected: func(*roster.Member) bool { return false }}, wake: make(chan struct{}, 1),
			shared: shared{peers: map[string]*site{"cloud": s}, due: due{names: map[mcs.Name]bool{}}},
		}
		said := 0
		say := func() {
			said++
			m := mcs.Message{}
			for i := range 100 {
				m.Set = append(m.Set, web(t, fmt.Sprintf("web-%d-%d", said%2, i), 1).Text)
			}
			names, err := s.reader.Take(m, c.roomLocked(s, 0))
			if err != nil || len(names) < 100 {
				t.Fatal(len(names), err)
			}
			c.changedLocked(s, names)
		}
		looked := func() int { // at services, since the last time
			n := len(c.due.names)
			c.due.names = map[mcs.Name]bool{}
			return n
		}
		say()
		if n := looked(); n != 100 {
			t.Errorf("of 100 new services %d take effect", n)
		}
		changed := 0
		start := time.Now()
		for time.Since(start) < 3*time.Minute {
			time.Sleep(time.Second)
			c.Tick(time.Now())
			say()
			changed += looked()
		}
		if most := changeBurst + int(changeRate*3*60); changed > most || changed < changeBurst/2 {
			t.Errorf("%d changes took effect in 3 minutes, at most %d may", changed, most)
		}
		for s.behind { // it is calm, and the last change is looked at
			time.Sleep(time.Second)
			c.Tick(time.Now())
			if time.Since(start) > 5*time.Minute {
				t.Fatal("what has changed takes no effect")
			}
		}
		for _, n := range s.reader.Names() {
			if !c.due.names[n] {
				t.Errorf("%s is not looked at", n)
			}
		}
	})
}
