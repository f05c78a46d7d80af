package mcs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Reasons of conflicts, as the API names them (sigs.k8s.io/mcs-api v1beta1).
const (
	PortConflict                  = "PortConflict"
	TypeConflict                  = "TypeConflict"
	SessionAffinityConflict       = "SessionAffinityConflict"
	SessionAffinityConfigConflict = "SessionAffinityConfigConflict"
	LabelsConflict                = "LabelsConflict"
	AnnotationsConflict           = "AnnotationsConflict"
	InternalTrafficPolicyConflict = "InternalTrafficPolicyConflict"
	TrafficDistributionConflict   = "TrafficDistributionConflict"
)

// PeerOffer is an offer and the peer that announced it.
type PeerOffer struct {
	Peer   string
	Silent bool // the peer does not answer
	*Offer
}

// exported is one cluster's export of a service.
type exported struct {
	peer    string    // empty: this cluster
	created time.Time // to the second
	spec    *Spec
	text    func() string // of the spec, encoded at most once
}

func newExported(peer string, created time.Time, spec *Spec) exported {
	return exported{peer, created.Truncate(time.Second), spec, sync.OnceValue(spec.text)}
}

// Merge combines all clusters' exports of one service into this cluster's import. own is nil unless
// it is exported here; all offers have that name. at returns the listener here for a port of a
// peer's backend, if there is one.
//
// If exports disagree, the oldest counts. If two were created in the same second, it is the one
// whose content sorts first, which is the same for all clusters. Ports are united, by age. A cluster
// that cannot serve is down if another can.
func Merge(name Name, own *Export, told []PeerOffer, at func(peer, hostname string, port Port) (netip.AddrPort, bool)) (Import, []Conflict) {
	var all []exported
	if own != nil {
		all = append(all, newExported("", own.Created, &own.Spec))
	}
	for _, t := range told {
		all = append(all, newExported(t.Peer, t.Created, &t.Spec))
	}
	slices.SortStableFunc(all, func(a, b exported) int {
		if age := a.created.Compare(b.created); age != 0 {
			return age
		}
		return cmp.Compare(a.text(), b.text())
	})
	out := Import{Name: name, Own: own != nil, Spec: *all[0].spec}
	out.Spec.Ports = unite(all)
	able := own != nil && (len(own.Upstreams) > 0 || slices.ContainsFunc(own.Backends, func(b Backend) bool { return b.Ready }))
	able = able || slices.ContainsFunc(told, func(t PeerOffer) bool { return !t.Silent && !t.Idle })
	for _, t := range told {
		c := t.cluster(at)
		c.Down = able && out.Spec.Type == ClusterSetIP && (t.Silent || t.Idle)
		out.Clusters = append(out.Clusters, c)
	}
	slices.SortFunc(out.Clusters, func(a, b Cluster) int { return cmp.Compare(a.ID, b.ID) })
	if own == nil {
		return out, nil
	}
	return out, conflicts(name, all)
}

// text orders specs of the same age.
func (s *Spec) text() string {
	b, _ := json.Marshal(s) // cannot fail: plain types
	return string(b)
}

// unite merges the lists of ports. If two ports exclude each other, the older counts: those with
// the same name or number, and those of which one has no name, which is only allowed for a single
// port.
func unite(all []exported) []Port {
	var out []Port
	names, numbers := map[string]bool{}, map[portNumber]bool{}
	for _, e := range all {
		for _, p := range e.spec.Ports {
			n := portNumber{p.Protocol, p.Port}
			if names[p.Name] || numbers[n] || names[""] || p.Name == "" && len(out) > 0 {
				continue
			}
			names[p.Name], numbers[n] = true, true
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePorts)
	return out
}

func comparePorts(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// cluster returns the listeners for a peer's backends.
func (t PeerOffer) cluster(at func(peer, hostname string, port Port) (netip.AddrPort, bool)) Cluster {
	c := Cluster{ID: t.Peer}
	for _, place := range t.Places {
		e := Endpoint{Hostname: place.Hostname}
		for i, p := range t.Spec.Ports {
			if place.At[i] == 0 {
				continue
			}
			if a, there := at(t.Peer, place.Hostname, p); there {
				e.Ports = append(e.Ports, EndpointPort{Port: p, At: a})
			}
		}
		c.Endpoints = append(c.Endpoints, e)
	}
	return c
}

// maxNamed is how many clusters a conflict names: the API server bounds the message of a condition.
const maxNamed = 20

// conflicts returns the fields in which exports disagree, the oldest first.
func conflicts(name Name, all []exported) []Conflict {
	samePorts := func(a, b *Spec) bool {
		return slices.Equal(slices.SortedFunc(slices.Values(a.Ports), comparePorts), slices.SortedFunc(slices.Values(b.Ports), comparePorts))
	}
	var out []Conflict
	for _, field := range []struct {
		reason, what string
		same         func(a, b *Spec) bool
		counts       func(*Spec) string
	}{
		{AnnotationsConflict, "annotations", func(a, b *Spec) bool { return maps.Equal(a.Annotations, b.Annotations) }, nil},
		{InternalTrafficPolicyConflict, "the internal traffic policy", func(a, b *Spec) bool { return a.InternalTrafficPolicy == b.InternalTrafficPolicy },
			func(s *Spec) string { return s.InternalTrafficPolicy }},
		{LabelsConflict, "labels", func(a, b *Spec) bool { return maps.Equal(a.Labels, b.Labels) }, nil},
		{PortConflict, "ports", samePorts, nil},
		{SessionAffinityConfigConflict, "the time-out of the session affinity",
			func(a, b *Spec) bool { return a.Affinity.ClientIP != b.Affinity.ClientIP || a.Affinity == b.Affinity },
			func(s *Spec) string { return s.Affinity.Timeout.String() }},
		{SessionAffinityConflict, "the session affinity", func(a, b *Spec) bool { return a.Affinity.ClientIP == b.Affinity.ClientIP },
			func(s *Spec) string {
				if s.Affinity.ClientIP {
					return "ClientIP"
				}
				return "None"
			}},
		{TrafficDistributionConflict, "the traffic distribution", func(a, b *Spec) bool { return a.TrafficDistribution == b.TrafficDistribution },
			func(s *Spec) string { return s.TrafficDistribution }},
		{TypeConflict, "the type", func(a, b *Spec) bool { return a.Type == b.Type }, func(s *Spec) string { return string(s.Type) }},
	} {
		oldest := all[0]
		var others []string
		for _, e := range all[1:] {
			if !field.same(oldest.spec, e.spec) {
				others = append(others, e.where())
			}
		}
		if len(others) == 0 {
			continue
		}
		outcome := "those of the oldest export count"
		switch {
		case field.reason == PortConflict:
			outcome = "they are united, and of two that cannot be together the older counts"
		case field.counts != nil:
			outcome = fmt.Sprintf("that of the oldest export counts: %q", field.counts(oldest.spec))
		}
		if n := len(others); n > maxNamed {
			others = append(others[:maxNamed:maxNamed], fmt.Sprintf("%d more", n-maxNamed))
		}
		out = append(out, Conflict{name, field.reason, fmt.Sprintf("%s of %s differ from the oldest export, that of %s; %s",
			field.what, strings.Join(others, ", "), oldest.where(), outcome)})
	}
	return out
}

func (e exported) where() string {
	if e.peer == "" {
		return "this cluster"
	}
	return e.peer
}
