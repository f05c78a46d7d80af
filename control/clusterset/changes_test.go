package clusterset

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
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
		set, said := texts(t, 200, 1), 0
		say := func() {
			said++
			names, err := s.reader.Take(mcs.Message{Set: set[said%2*100:][:100]}, nil)
			if err != nil || len(names) < 100 {
				t.Fatal(len(names), err)
			}
			c.changedLocked(s, names)
		}
		looked := func() int { // at services, since the last time
			n := len(c.due.names)
			if c.due.all {
				n = len(s.reader.Names())
			}
			c.due = due{names: map[mcs.Name]bool{}}
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
		if !c.due.all {
			t.Error("not all services are looked at")
		}
	})
}

// A peer that is behind withdraws a service while it is being imported, and catches up before that
// is published.
func TestAServiceThatIsWithdrawnWhileItIsImportedIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := state.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	from := peer.PrivateKeyFromBytes([32]byte{1}).Public()
	elsewhere, err := api.ParseListen("192.0.2.1:80") // not on this machine
	if err != nil {
		t.Fatal(err)
	}
	r, err := roster.Make(peer.PrivateKeyFromBytes([32]byte{2}).Public(), []config.Peer{{
		Name: "cloud", PublicKey: from, Import: mcs.Patterns{"shop"}, Local: map[string]api.ListenAddress{"shop/api:80": elsewhere},
	}}, state.Peers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var c *Clusterset
	say := func(m mcs.Message) {
		t.Helper()
		m.Base = c.peers["cloud"].reader.Has()
		body, err := json.Marshal(m)
		if err == nil {
			_, err = c.Receive(from, body)
		}
		if err != nil {
			t.Error(err)
		}
	}
	opening := sync.OnceFunc(func() { // the listener of api, before that of web
		c.peers["cloud"].behind = true
		say(mcs.Message{Gone: []string{"shop/web"}})
		c.Tick(time.Now())
	})
	c = New(Options{
		Ctx: ctx, Store: store, Peers: &roster.Registry{View: roster.NewView(r, &config.Resolved{Name: "edge"})},
		Flows: forward.NewFlows(forward.Limits{}), Connected: func(*roster.Member) bool { return true }, Logger: slog.New(logged{slog.DiscardHandler, opening}),
	})
	defer c.Close()
	c.SetNamespaces([]string{"shop"})
	say(mcs.Message{Set: []json.RawMessage{web(t, "api", 0).Text, web(t, "web", 0).Text}})
	for done := false; !done; {
		select {
		case <-c.wake:
			c.reconcile()
		default:
			done = true
		}
	}
	if st, _ := c.State(); len(st.Imports) != 1 || st.Imports[0].Name.Name != "api" {
		t.Errorf("imported are %+v, want api alone", st.Imports)
	}
}

// logged calls a function for each record.
type logged struct {
	slog.Handler
	do func()
}

func (l logged) Enabled(context.Context, slog.Level) bool  { return true }
func (l logged) Handle(context.Context, slog.Record) error { l.do(); return nil }
func (l logged) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l logged) WithGroup(string) slog.Handler             { return l }

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
	if names = c.due.names; c.due.all {
		for n := range c.imports {
			names[n] = true
		}
	}
	c.due = due{names: map[mcs.Name]bool{}}
	return woken, names
}
