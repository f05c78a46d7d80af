package mcs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// The rules of KEP-1645, constraints and conflict resolution.
func TestMerge(t *testing.T) {
	http, https := Port{"http", api.TCP, 80, ""}, Port{"https", api.TCP, 443, ""}
	spec := func(ports ...Port) Spec { return Spec{Type: ClusterSetIP, Ports: ports} }
	with := func(s Spec, f func(*Spec)) Spec { f(&s); return s }
	const old, young = 1, 2
	type cluster struct {
		name string // empty: this one
		age  int
		spec Spec
	}
	for name, c := range map[string]struct {
		clusters  []cluster
		want      Spec
		conflicts []string
	}{
		"one":              {[]cluster{{"a", old, spec(http)}}, spec(http), nil},
		"own":              {[]cluster{{"", old, spec(http)}}, spec(http), nil},
		"the same":         {[]cluster{{"", young, spec(http, https)}, {"a", old, spec(https, http)}}, spec(http, https), nil},
		"ports are united": {[]cluster{{"", old, spec(http)}, {"a", young, spec(https)}}, spec(http, https), []string{PortConflict}},
		"the older port of a name counts": {[]cluster{{"", young, spec(Port{"http", api.TCP, 8080, ""})}, {"a", old, spec(http)}},
			spec(http), []string{PortConflict}},
		"the older name of a port counts": {[]cluster{{"", young, spec(Port{"web", api.TCP, 80, ""}, https)}, {"a", old, spec(http)}},
			spec(http, https), []string{PortConflict}},
		"nothing is beside an older port without a name": {[]cluster{{"", old, spec(Port{"", api.TCP, 80, ""})}, {"a", young, spec(https)}},
			spec(Port{"", api.TCP, 80, ""}), []string{PortConflict}},
		"a port without a name is not beside older ones": {[]cluster{{"", young, spec(Port{"", api.TCP, 8080, ""})}, {"a", old, spec(http, https)}},
			spec(http, https), []string{PortConflict}},
		"the older type counts": {[]cluster{{"", young, with(spec(http), func(s *Spec) { s.Type = Headless })}, {"a", old, spec(http)}},
			spec(http), []string{TypeConflict}},
		"the older affinity counts": {[]cluster{{"", old, with(spec(http), func(s *Spec) { s.Affinity = Affinity{true, time.Hour} })}, {"a", young, spec(http)}},
			with(spec(http), func(s *Spec) { s.Affinity = Affinity{true, time.Hour} }), []string{SessionAffinityConflict}},
		"the older time-out counts": {[]cluster{
			{"", old, with(spec(http), func(s *Spec) { s.Affinity = Affinity{true, time.Hour} })},
			{"a", young, with(spec(http), func(s *Spec) { s.Affinity = Affinity{true, time.Minute} })}},
			with(spec(http), func(s *Spec) { s.Affinity = Affinity{true, time.Hour} }), []string{SessionAffinityConfigConflict}},
		"marks and policies": {[]cluster{
			{"", young, with(spec(http), func(s *Spec) {
				s.Labels, s.Annotations, s.InternalTrafficPolicy, s.TrafficDistribution = map[string]string{"a": "b"}, map[string]string{"a": "b"}, "Local", "PreferClose"
			})},
			{"a", old, spec(http)}},
			spec(http), []string{AnnotationsConflict, InternalTrafficPolicyConflict, LabelsConflict, TrafficDistributionConflict}},
		"of others' conflicts nothing is said": {[]cluster{{"b", young, spec(https)}, {"a", old, spec(http)}}, spec(http, https), nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := Name{"shop", "web"}
			var own *Export
			var told []PeerOffer
			for _, x := range c.clusters {
				created := since.Add(time.Duration(x.age) * time.Hour)
				if x.name == "" {
					own = &Export{Name: n, Created: created, Spec: x.spec}
					continue
				}
				told = append(told, PeerOffer{Peer: x.name, Offer: &Offer{Name: n, Created: created, Spec: x.spec, Spread: 1,
					Places: []Place{{At: slices.Repeat([]uint16{FirstPort}, len(x.spec.Ports))}}}})
			}
			at := netip.MustParseAddrPort("10.0.0.1:30000")
			got, conflicts := Merge(n, own, told, func(string, string, Port) (netip.AddrPort, bool) { return at, true })
			if !got.Spec.equal(c.want) || got.Own != (own != nil) || len(got.Clusters) != len(told) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			var reasons []string
			for _, x := range conflicts {
				reasons = append(reasons, x.Reason)
				if x.Message == "" || x.Name != n {
					t.Errorf("a conflict says %+v", x)
				}
			}
			if !slices.Equal(reasons, c.conflicts) {
				t.Errorf("the conflicts are %v, want %v", reasons, c.conflicts)
			}
			for _, x := range got.Clusters {
				if len(x.Endpoints) != 1 || len(x.Endpoints[0].Ports) == 0 || x.Endpoints[0].Ports[0].At != at {
					t.Errorf("%s is reached at %+v", x.ID, x.Endpoints)
				}
			}
		})
	}
}

// Of two exports of the same second, all clusters choose the same.
func TestExportsOfOneAgeAreOrderedAlikeEverywhere(t *testing.T) {
	n := Name{"shop", "web"}
	a, b := Spec{Type: ClusterSetIP, Ports: []Port{{"a", api.TCP, 80, ""}}}, Spec{Type: Headless, Ports: []Port{{"b", api.TCP, 80, ""}}}
	nowhere := func(string, string, Port) (netip.AddrPort, bool) { return netip.AddrPort{}, false }
	at := func(own, other Spec) Spec {
		got, _ := Merge(n, &Export{Name: n, Created: since, Spec: own}, []PeerOffer{{Peer: "peer", Offer: &Offer{Name: n, Created: since.Add(time.Millisecond), Spec: other}}}, nowhere)
		return got.Spec
	}
	if here, there := at(a, b), at(b, a); !reflect.DeepEqual(here, there) {
		t.Errorf("one cluster has %+v and the other %+v", here, there)
	}
}

// A cluster that does not answer, or has no ready backend, is down while another can serve.
func TestAClusterThatCannotServeIsDown(t *testing.T) {
	n := Name{"shop", "web"}
	for what, c := range map[string]struct {
		kind  Type
		ready []bool // of the own export's backends; nil: there is no own export
		told  []PeerOffer
		want  []string
	}{
		"all can":               {ClusterSetIP, nil, []PeerOffer{{Peer: "a"}, {Peer: "b"}}, nil},
		"one is silent":         {ClusterSetIP, nil, []PeerOffer{{Peer: "a", Silent: true}, {Peer: "b"}}, []string{"a"}},
		"one is idle":           {ClusterSetIP, nil, []PeerOffer{{Peer: "a"}, {Peer: "b", Offer: &Offer{Idle: true}}}, []string{"b"}},
		"the only one":          {ClusterSetIP, nil, []PeerOffer{{Peer: "a", Silent: true}}, nil},
		"none can":              {ClusterSetIP, []bool{false}, []PeerOffer{{Peer: "a", Silent: true}, {Peer: "b", Offer: &Offer{Idle: true}}}, nil},
		"this cluster can":      {ClusterSetIP, []bool{false, true}, []PeerOffer{{Peer: "a", Silent: true}, {Peer: "b", Offer: &Offer{Idle: true}}}, []string{"a", "b"}},
		"names of its backends": {Headless, []bool{true}, []PeerOffer{{Peer: "a", Silent: true}}, nil},
	} {
		spec := Spec{Type: c.kind, Ports: []Port{{"http", api.TCP, 80, ""}}}
		var own *Export
		if c.ready != nil {
			own = &Export{Name: n, Created: since, Spec: spec}
			for _, r := range c.ready {
				own.Backends = append(own.Backends, Backend{Ready: r})
			}
		}
		for i, x := range c.told {
			o := web("web", func(o *Offer) { o.Spec, o.Idle, o.Places = spec, x.Offer != nil && x.Idle, nil })
			offer, err := decode(entry(t, o).Text) // as it arrives
			if err != nil {
				t.Fatal(err)
			}
			c.told[i].Offer = offer
		}
		i, _ := Merge(n, own, c.told, func(string, string, Port) (netip.AddrPort, bool) { return netip.AddrPort{}, false })
		var down []string
		for _, x := range i.Clusters {
			if x.Down {
				down = append(down, x.ID)
			}
		}
		if !slices.Equal(down, c.want) {
			t.Errorf("%s: down are %v, want %v", what, down, c.want)
		}
	}
}

// equal reports whether two specs are the same.
func (s Spec) equal(t Spec) bool {
	return s.Type == t.Type && slices.Equal(s.Ports, t.Ports) && s.Affinity == t.Affinity &&
		s.InternalTrafficPolicy == t.InternalTrafficPolicy && s.TrafficDistribution == t.TrafficDistribution &&
		maps.Equal(s.Labels, t.Labels) && maps.Equal(s.Annotations, t.Annotations)
}

// However many clusters disagree, the API server accepts the conflicts in one condition's message.
func TestConflictsOfManyClustersFitIntoACondition(t *testing.T) {
	const most = 32768 // metav1.Condition
	own := &Export{Created: since, Spec: Spec{Type: ClusterSetIP, Ports: []Port{{"http", api.TCP, 80, ""}}}}
	var told []PeerOffer
	for i := range 1000 {
		told = append(told, PeerOffer{Peer: fmt.Sprintf("%063d", i), Offer: &Offer{Created: since.Add(time.Hour), Spec: Spec{
			Type: Headless, Affinity: Affinity{ClientIP: true}, InternalTrafficPolicy: "Local", TrafficDistribution: "PreferClose",
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}})
	}
	_, conflicts := Merge(Name{"shop", "web"}, own, told, func(string, string, Port) (netip.AddrPort, bool) { return netip.AddrPort{}, false })
	size := 0
	for _, c := range conflicts {
		size += len(c.Message)
	}
	if len(conflicts) < 7 || size > most/2 {
		t.Errorf("%d conflicts have %d bytes", len(conflicts), size)
	}
	if m := conflicts[0].Message; !strings.Contains(m, ", 980 more differ from the oldest export") {
		t.Errorf("the first is %.200s … %s", m, m[max(0, len(m)-200):])
	}
}

// Ports are united as if each were compared with each.
func TestManyPortsAreUnitedInOrder(t *testing.T) {
	each := func(all []exported) (out []Port) {
		for _, e := range all {
			for _, p := range e.spec.Ports {
				if !slices.ContainsFunc(out, func(q Port) bool {
					return q.Name == p.Name || q.Name == "" || p.Name == "" || q.Protocol == p.Protocol && q.Port == p.Port
				}) {
					out = append(out, p)
				}
			}
		}
		slices.SortFunc(out, comparePorts)
		return out
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var all []exported
		for range 4 {
			var s Spec
			for range 1 + r.IntN(3) {
				p := Port{fmt.Sprint("p", r.IntN(5)), []api.Protocol{api.TCP, api.UDP}[r.IntN(2)], uint16(1 + r.IntN(5)), ""}
				if len(s.Ports) == 0 && r.IntN(4) == 0 {
					p.Name = ""
				}
				if s.Ports = append(s.Ports, p); p.Name == "" {
					break
				}
			}
			all = append(all, newExported("", time.Time{}, &s))
		}
		if got, want := unite(all), each(all); !slices.Equal(got, want) {
			t.Fatalf("united are %v, want %v", got, want)
		}
	}
}

// Peers that export a service at the same second cost no more each if there are many.
func TestASpecIsEncodedOnce(t *testing.T) {
	allocations := func(peers int) float64 {
		var told []PeerOffer
		for peer := range peers {
			o := &Offer{Created: time.Unix(1_700_000_000, 0), Spec: Spec{Type: ClusterSetIP, Ports: []Port{{"http", api.TCP, 80, ""}}, Annotations: map[string]string{}}}
			for i := range maxLabels {
				o.Spec.Annotations[fmt.Sprint("a", i)] = fmt.Sprint(peer * 7 % peers)
			}
			told = append(told, PeerOffer{Peer: fmt.Sprint(peer), Offer: o})
		}
		return testing.AllocsPerRun(1, func() { Merge(Name{"shop", "web"}, nil, told, nil) }) / float64(peers)
	}
	if few, many := allocations(2), allocations(128); many > 1.5*few {
		t.Errorf("%.0f allocations for each of 2 peers, %.0f for each of 128", few, many)
	}
}
