package clusterset

import (
	"fmt"
	"maps"
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

// When a peer falls silent or answers again, the services are looked at that another cluster
// exports, too.
func TestServicesOfASilentPeerAreLookedAt(t *testing.T) {
	answers := true
	s := newSite(all)
	clusters := func(ids ...string) (out []mcs.Cluster) {
		for _, id := range ids {
			out = append(out, mcs.Cluster{ID: id})
		}
		return out
	}
	name := func(n string) mcs.Name { return mcs.Name{Namespace: "shop", Name: n} }
	c := &Clusterset{
		o: Options{Connected: func(*roster.Member) bool { return answers }}, wake: make(chan struct{}, 1),
		shared: shared{peers: map[string]*site{"cloud": s}, due: due{names: map[mcs.Name]bool{}}, state: mcs.State{Imports: []mcs.Import{
			{Name: name("alone"), Clusters: clusters("cloud")}, {Name: name("both"), Clusters: clusters("cloud", "east")},
			{Name: name("other"), Own: true, Clusters: clusters("east")}, {Name: name("own"), Own: true, Clusters: clusters("cloud")},
		}}},
	}
	for _, step := range []struct{ answers, changed bool }{{true, false}, {false, true}, {false, false}, {true, true}} {
		answers, c.due.names = step.answers, map[mcs.Name]bool{}
		c.Tick(time.Now())
		want := map[mcs.Name]bool{}
		if step.changed {
			want = map[mcs.Name]bool{name("both"): true, name("own"): true}
		}
		if !maps.Equal(c.due.names, want) || s.silent == answers {
			t.Errorf("it answers: %v; looked at are %v, want %v", answers, c.due.names, want)
		}
	}
}
