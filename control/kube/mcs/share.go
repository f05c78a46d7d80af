package mcs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/mirror"
	services "github.com/postern-dev/postern/control/mcs"
)

// apart returns the imports without a peer that has this cluster's name, and records that.
func (m *maker) apart(imports []services.Import) []services.Import {
	var out []services.Import
	alike := func(c services.Cluster) bool { return c.ID == m.o.ID }
	for _, i := range imports {
		if slices.ContainsFunc(i.Clusters, alike) {
			m.problems = append(m.problems, services.Problem{Name: i.Name, Peer: m.o.ID, Code: catalogue.PeerNamedAlike})
			if i.Clusters = slices.DeleteFunc(slices.Clone(i.Clusters), alike); len(i.Clusters) == 0 && !i.Own {
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// hold leaves imports as they are that one of these peers, which are awaited since the start, exported
// before: its ports would go and come back, as would whatever else its export decides. Only the
// endpoints follow of those that are heard.
func (m *maker) hold(imports []services.Import, awaited []string) {
	m.held = map[services.Name]bool{}
	for n := range imports {
		i := &imports[n]
		x := m.seen.imports[types.NamespacedName(i.Name)]
		if x == nil || m.taken(*i) || !exportedBy(x, awaited) {
			continue
		}
		m.held[i.Name] = true
		i.Spec.Type, i.Spec.Ports, i.Spec.Affinity = services.Type(x.Spec.Type), nil, services.Affinity{ClientIP: x.Spec.SessionAffinity == corev1.ServiceAffinityClientIP}
		for _, p := range x.Spec.Ports {
			i.Spec.Ports = append(i.Spec.Ports, services.Port{Name: p.Name, Protocol: api.Protocol(p.Protocol), Port: uint16(p.Port), AppProtocol: value(p.AppProtocol)})
		}
		if c := x.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
			i.Spec.Affinity.Timeout = time.Duration(value(c.ClientIP.TimeoutSeconds)) * time.Second
		}
	}
}

// exportedBy reports whether an import is exported by one of these clusters.
func exportedBy(x *v1beta1.ServiceImport, clusters []string) bool {
	return slices.ContainsFunc(x.Status.Clusters, func(c v1beta1.ClusterStatus) bool { return slices.Contains(clusters, c.Cluster) })
}

// share decides which derived Services of imports get an address: namespaces, and in each the
// clusters that export there, take turns, and those that exist stay if possible. Each takes its
// address from the share of whichever of its clusters has most left. It records the imports for
// which there are too few.
func (m *maker) share(imports []services.Import) {
	type claim struct {
		id
		of       services.Name
		clusters []string
	}
	var claims []claim
	for _, i := range imports {
		if !slices.Contains(m.seen.namespaces, i.Name.Namespace) || m.taken(i) {
			continue
		}
		add := func(name string, clusters ...string) {
			claims = append(claims, claim{id{serviceKind, i.Name.Namespace, name}, i.Name, clusters})
		}
		var all []string
		for _, c := range i.Clusters {
			all = append(all, c.ID)
			for _, e := range c.Endpoints {
				if i.Spec.Type == services.Headless && len(e.Ports) > 0 {
					add(derivedName(i.Name, c.ID, e.Hostname), c.ID)
				}
			}
		}
		if i.Own || len(all) == 0 {
			all = append(all, m.o.ID)
		}
		if i.Spec.Type == services.ClusterSetIP {
			add(derivedName(i.Name), all...)
		}
	}
	type holder struct{ namespace, clusters string }
	claims = services.Turns(claims, func(c claim) (of holder, addresses int, has bool) {
		return holder{c.namespace, strings.Join(c.clusters, " ")}, 1, m.seen.objects[c.id] != nil
	})
	m.derived = map[id]bool{}
	taken := map[string]int{} // addresses, by cluster
	for _, c := range claims {
		cluster := slices.MinFunc(c.clusters, func(a, b string) int { return cmp.Compare(taken[a], taken[b]) })
		if len(m.derived) < maxDerived && taken[cluster] < peerDerived {
			taken[cluster]++
			m.derived[c.id] = true
			continue
		}
		p := services.Problem{Name: c.of, Code: catalogue.ImportsFull,
			Detail: fmt.Sprintf("services of other clusters may take %d addresses of this cluster for one peer and %d in all", peerDerived, maxDerived)}
		if c.clusters[0] != m.o.ID {
			p.Peer = c.clusters[0]
		}
		m.problems = append(m.problems, p)
	}
}

// keeper returns a function that reports which objects are kept although they are not wanted now:
// those of peers that have not announced their exports since the gateway's start.
func keeper(s seen, unheard []string) func(mirror.Object) bool {
	kept := func(namespace, name string) bool {
		x := s.imports[types.NamespacedName{Namespace: namespace, Name: name}]
		return x != nil && exportedBy(x, unheard)
	}
	return func(x mirror.Object) bool {
		labels, name := x.GetLabels(), x.GetName()
		_, told := labels[v1beta1.LabelSourceCluster]
		if service := s.services[types.NamespacedName{Namespace: x.GetNamespace(), Name: labels[discoveryv1.LabelServiceName]}]; service != nil && !told {
			labels = service.Labels
		}
		if cluster, of := labels[v1beta1.LabelSourceCluster]; of {
			return slices.Contains(unheard, cluster)
		}
		if of := labels[v1beta1.LabelServiceName]; of != "" {
			name = of
		}
		return kept(x.GetNamespace(), name)
	}
}
