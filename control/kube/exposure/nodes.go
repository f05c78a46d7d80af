package exposure

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/control/catalogue"
)

// maxNodes bounds the announced nodes. Every node leads to the gateway; peers probe every
// address, and two working ones are enough.
const maxNodes = 4

// nodePorts adds the node port of a Service's port at the nodes that lead to the gateway. It
// returns what it added, or why nothing.
func (f facts) nodePorts(d *derived, found *endpoints, s *corev1.Service, port corev1.ServicePort) (added []catalogue.Candidate, why string) {
	if port.NodePort == 0 {
		return nil, "it has no node port"
	}
	d.wantNodes = true
	nodes, why := f.leading(s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal)
	number := strconv.Itoa(int(port.NodePort))
	for _, n := range nodes {
		for _, a := range reachable(n) {
			before := len(*found)
			found.add(a.Address, number, fmt.Sprintf("NodePort %s on node %s (%s%s)", number, n.Name, a.Type, locality(a.Address)))
			if len(*found) > before {
				added = append(added, catalogue.Candidate{Address: (*found)[before].Address, Reason: fmt.Sprintf("%s of node %s", a.Type, n.Name)})
			}
		}
	}
	return added, why
}

// leading returns the nodes that lead to the gateway: the active pod's first, then those with an
// external address, then by name.
func (f facts) leading(local bool) (out []*corev1.Node, why string) {
	var active string
	for _, p := range f.pods.list {
		active = p.Spec.NodeName
	}
	down := 0
	for _, n := range f.nodes.list {
		switch {
		case local && n.Name != active:
		case !ready(n) || n.DeletionTimestamp != nil:
			down++
		default:
			out = append(out, n)
		}
	}
	rank := func(n *corev1.Node) int {
		switch a := reachable(n); {
		case n.Name == active:
			return 0
		case len(a) > 0 && a[0].Type != corev1.NodeInternalIP:
			return 1
		}
		return 2
	}
	slices.SortFunc(out, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case len(out) > 0:
		return out[:min(len(out), maxNodes)], ""
	case local && active == "":
		return nil, "with externalTrafficPolicy Local only the node of the active pod leads here, and no pod has the label postern.dev/role: active"
	case local && down > 0:
		return nil, fmt.Sprintf("with externalTrafficPolicy Local only node %s, where the active pod is, leads here, and it is not Ready", active)
	}
	return nil, fmt.Sprintf("of %d nodes none is Ready", len(f.nodes.list))
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// reachable returns the addresses of a node that others may dial: its external ones, or else its
// internal ones. Hostname and InternalDNS are only meaningful inside.
func reachable(n *corev1.Node) []corev1.NodeAddress {
	of := func(types ...corev1.NodeAddressType) []corev1.NodeAddress {
		var out []corev1.NodeAddress
		for _, t := range types {
			for _, a := range n.Status.Addresses {
				if a.Type == t && a.Address != "" {
					out = append(out, a)
				}
			}
		}
		return out
	}
	if outside := of(corev1.NodeExternalIP, corev1.NodeExternalDNS); len(outside) > 0 {
		return outside
	}
	return of(corev1.NodeInternalIP)
}

// locality returns a note that an address is private, for use after another word; note stands by
// itself.
func locality(host string) string {
	if private(host) {
		return ", private"
	}
	return ""
}

func note(host string) string {
	if private(host) {
		return " (private)"
	}
	return ""
}
