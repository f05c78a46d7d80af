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
			names, err := s.reader.Take(m, nil)
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
// exports, too, also those that are not published yet.
func TestServicesOfASilentPeerAreLookedAt(t *testing.T) {
	answers := true
	s := newSite(all)
	name := func(n string) mcs.Name { return mcs.Name{Namespace: "shop", Name: n} }
	c := silencing(s, &answers, mcs.Import{Name: name("alone"), Clusters: clusters("cloud")}, mcs.Import{Name: name("both"), Clusters: clusters("cloud", "east")},
		mcs.Import{Name: name("other"), Own: true, Clusters: clusters("east")}, mcs.Import{Name: name("own"), Own: true, Clusters: clusters("cloud")})
	for _, step := range []struct{ answers, changed bool }{{true, false}, {false, true}, {false, false}, {true, true}} {
		answers = step.answers
		woken, names := look(c)
		want := map[mcs.Name]bool{}
		if step.changed {
			want = map[mcs.Name]bool{name("both"): true, name("own"): true}
		}
		if woken != step.changed || !maps.Equal(names, want) || s.silent == answers {
			t.Errorf("it answers: %v; woken: %v, looked at are %v, want %v", answers, woken, names, want)
		}
	}
}

// A peer that falls silent and answers all the time changes services no faster than one that
// announces others.
func TestServicesOfAPeerThatComesAndGoesTakeEffectLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := true
		s := newSite(all)
		var imports []mcs.Import
		for i := range mcs.MaxServices {
			imports = append(imports, mcs.Import{Name: mcs.Name{Namespace: "shop", Name: fmt.Sprint("web-", i)}, Own: true, Clusters: clusters("cloud")})
		}
		c := silencing(s, &answers, imports...)
		c.state.Imports = imports
		changed := 0
		for range 3 * 60 {
			answers = !answers
			time.Sleep(time.Second)
			_, names := look(c)
			changed += len(names)
		}
		if most := changeBurst + int(changeRate*3*60); changed > most || changed < changeBurst/2 {
			t.Errorf("%d changes took effect in 3 minutes, at most %d may", changed, most)
		}
		for end := time.Now().Add(5 * time.Minute); s.behind; time.Sleep(time.Second) {
			if _, names := look(c); !s.behind && len(names) != len(imports) {
				t.Errorf("at the end %d services are looked at, want %d", len(names), len(imports))
			}
			if time.Now().After(end) {
				t.Fatal("that it answers takes no effect")
			}
		}
	})
}

func clusters(ids ...string) (out []mcs.Cluster) {
	for _, id := range ids {
		out = append(out, mcs.Cluster{ID: id})
	}
	return out
}

// silencing returns a Clusterset with one peer, cloud, which answers or not.
func silencing(s *site, answers *bool, imports ...mcs.Import) *Clusterset {
	c := &Clusterset{
		o: Options{Connected: func(*roster.Member) bool { return *answers }}, wake: make(chan struct{}, 1), importer: newImporter(),
		shared: shared{peers: map[string]*site{"cloud": s}, due: due{names: map[mcs.Name]bool{}}},
	}
	for _, i := range imports {
		c.imports[i.Name] = i
	}
	return c
}

// look passes the time, and returns whether there is something to reconcile, and which services are
// then looked at.
func look(c *Clusterset) (woken bool, names map[mcs.Name]bool) {
	c.Tick(time.Now())
	select {
	case <-c.wake:
		woken = true
		c.silenceLocked()
	default:
	}
	select {
	case <-c.wake: // for what silenceLocked has found
	default:
	}
	names, c.due.names = c.due.names, map[mcs.Name]bool{}
	return woken, names
}
