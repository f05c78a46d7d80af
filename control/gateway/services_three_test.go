package gateway_test

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/lab"
)

// merged is how a service is imported, from whom, and in what its export disagrees with others.
func merged(st mcs.State, service string) (i mcs.Import, from map[string]netip.AddrPort, conflicts []string) {
	from = map[string]netip.AddrPort{}
	for _, x := range st.Imports {
		if x.Name.String() == service {
			i = x
		}
	}
	for _, c := range i.Clusters {
		if len(c.Endpoints) == 1 && len(c.Endpoints[0].Ports) > 0 {
			from[c.ID] = c.Endpoints[0].Ports[0].At
		}
	}
	for _, c := range st.Conflicts {
		if c.Name.String() == service {
			conflicts = append(conflicts, c.Reason)
		}
	}
	return i, from, conflicts
}

// Three clusters that export a service each import it from the two others. What they disagree in is
// told everywhere alike, also after one has left and come back.
func TestThreeClustersExportAService(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	third := w.addSite("third", "203.0.113.55")
	sites := []*lab.Site{w.Cloud, w.Edge, third}
	for _, s := range sites[:2] {
		w.join(s, w.invite(third, api.InviteRequest{Allow: both}), api.JoinRequest{Allow: both})
		w.connected(s, third)
		w.trade(s, third, "shop")
	}
	w.trade(w.Cloud, w.Edge, "shop")
	exports := map[string]mcs.Export{}
	for n, s := range sites { // the first is the oldest
		x := export("shop", "web", true, w.newPod(s.Name))
		x.UID, x.Created = s.Name, x.Created.Add(time.Duration(n)*time.Hour)
		exports[s.Name] = x
		s.Gateway.Services().SetNamespaces([]string{"shop"})
		s.Gateway.Services().SetExports([]mcs.Export{x})
	}
	// agree waits until all have the same of it, which is the spec, and looks who answers where.
	agree := func(what string, spec mcs.Spec, conflicts ...string) {
		t.Helper()
		for _, s := range sites {
			var others []string
			for _, o := range sites {
				if _, exports := exports[o.Name]; exports && o != s {
					others = append(others, o.Name)
				}
			}
			slices.Sort(others)
			_, own := exports[s.Name]
			want := conflicts
			if !own { // conflicts are of exports
				want = nil
			}
			var from map[string]netip.AddrPort
			w.awaitState(s, s.Name+" agrees when "+what, func(st mcs.State) string {
				var i mcs.Import
				var told []string
				if i, from, told = merged(st, "shop/web"); i.Own != own || !reflect.DeepEqual(i.Spec, spec) || !slices.Equal(told, want) ||
					!slices.Equal(slices.Sorted(maps.Keys(from)), others) {
					return fmt.Sprintf("%+v, conflicts %v; want %+v from %v, conflicts %v", i, told, spec, others, want)
				}
				return ""
			})
			for peer, a := range from {
				if who := w.answers(a); who != peer {
					t.Errorf("when %s %s has %s for %s", what, s.Name, who, peer)
				}
			}
		}
	}
	set := func(s *lab.Site, x *mcs.Export) {
		if delete(exports, s.Name); x != nil {
			exports[s.Name] = *x
			s.Gateway.Services().SetExports([]mcs.Export{*x})
			return
		}
		s.Gateway.Services().SetExports(nil)
	}
	oldest := exports[w.Cloud.Name].Spec
	agree("all say the same", oldest)

	// One says otherwise: the oldest counts, and all exports are told.
	x := exports[third.Name]
	x.Spec.Affinity = mcs.Affinity{ClientIP: true, Timeout: time.Hour}
	x.Spec.Ports = []mcs.Port{{Name: "http", Protocol: api.TCP, Port: 80}, {Name: "more", Protocol: api.TCP, Port: 81}}
	united := oldest
	united.Ports = x.Spec.Ports
	set(third, &x)
	agree("one disagrees", united, mcs.PortConflict, mcs.SessionAffinityConflict)

	// It leaves, and comes back.
	set(third, nil)
	agree("it has left", oldest)
	set(third, &x)
	agree("it is back", united, mcs.PortConflict, mcs.SessionAffinityConflict)

	// While it has no ready pod, the others get its connections.
	down := func(what string, want bool) {
		t.Helper()
		for _, s := range sites[:2] {
			w.awaitState(s, s.Name+" looks when "+what, func(st mcs.State) string {
				i, _, _ := merged(st, "shop/web")
				for _, c := range i.Clusters {
					if c.Down != (c.ID == third.Name && want) {
						return fmt.Sprintf("%s is down: %v", c.ID, c.Down)
					}
				}
				return ""
			})
		}
	}
	idle := x
	idle.Backends = slices.Clone(x.Backends)
	idle.Backends[0].Ready = false
	set(third, &idle)
	down("no pod is ready", true)
	set(third, &x)
	down("one is", false)
	w.stop(third)
	w.start(third)
	third.Gateway.Services().SetNamespaces([]string{"shop"})
	set(third, &x)
	agree("it has started again", united, mcs.PortConflict, mcs.SessionAffinityConflict)

	// The oldest leaves: the next counts.
	set(w.Cloud, nil)
	agree("the oldest has left", united, mcs.PortConflict, mcs.SessionAffinityConflict)
}
