package access

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// LabelPeer marks an object. LabelAllow followed by a peer's name, with the value Allow, marks
	// the pods that may use the peer's services.
	LabelPeer  = "postern.dev/peer"
	LabelAllow = "postern.dev/peer-"
	Allow      = "allow"

	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
	// manager is our field manager for server-side apply.
	manager = "postern"
	program = "postern"

	kindService = "Service"
	kindSecret  = "Secret"
	kindPolicy  = "NetworkPolicy"
)

// id identifies an object.
type id struct{ kind, name string }

// object is a wanted object.
type object struct {
	id
	peer string
	spec map[string]any // the body except type and metadata
	// keep: leave what is there unchanged.
	keep bool
}

func serviceName(peer string) string { return program + "-" + peer }

func secretName(peer string) string { return program + "-" + peer + "-kubeconfig" }

// objects returns those of one offer.
func (k *Keeper) objects(o offer) []object {
	var out []object
	if !o.noService {
		service := object{id: id{kindService, serviceName(o.peer)}, peer: o.peer, spec: k.service(o)}
		// A port with an unknown number would be removed from a Service that has it.
		_, there := k.have[service.id]
		unknown := slices.ContainsFunc(o.ports, func(p port) bool { return p.number == 0 })
		service.keep = o.keep || service.spec == nil || there && unknown
		out = append(out, service, object{id: id{kindPolicy, serviceName(o.peer)}, peer: o.peer, spec: k.policy(o), keep: o.keep})
	}
	if !o.noSecret {
		out = append(out, object{id: id{kindSecret, secretName(o.peer)}, peer: o.peer,
			spec: map[string]any{"type": "Opaque", "data": o.secret}, keep: o.secret == nil})
	}
	return out
}

func (k *Keeper) service(o offer) map[string]any {
	var ports []any
	for _, p := range o.ports {
		if p.number != 0 {
			ports = append(ports, map[string]any{"name": p.name, "protocol": "TCP", "port": p.number, "targetPort": p.target})
		}
	}
	if len(ports) == 0 {
		return nil
	}
	return map[string]any{"spec": map[string]any{"type": "ClusterIP", "selector": k.o.Selector, "ports": ports}}
}

// policy admits pods with the label to the peer's listeners, and everyone to the gateway's UDP port
// and to auth outside the tunnel. It closes the pods to everything else.
func (k *Keeper) policy(o offer) map[string]any {
	pods := k.o.Pods
	if len(pods) == 0 {
		pods = k.o.Selector
	}
	var ports []any
	for _, p := range o.ports {
		ports = append(ports, map[string]any{"protocol": "TCP", "port": p.target})
	}
	ingress := []any{map[string]any{
		"from": []any{map[string]any{
			"namespaceSelector": map[string]any{"matchExpressions": []any{map[string]any{
				"key": corev1.LabelMetadataName, "operator": "In", "values": withOwn(k.o.Namespace, k.o.From)}}},
			"podSelector": map[string]any{"matchLabels": map[string]string{LabelAllow + o.peer: Allow}},
		}},
		"ports": ports,
	}}
	if k.o.Port != 0 {
		ingress = append(ingress, map[string]any{"ports": []any{map[string]any{"protocol": "UDP", "port": k.o.Port}}})
	}
	if k.o.AuthPort != 0 {
		ingress = append(ingress, map[string]any{"ports": []any{map[string]any{"protocol": "TCP", "port": k.o.AuthPort}}})
	}
	return map[string]any{"spec": map[string]any{
		"podSelector": map[string]any{"matchLabels": pods}, "policyTypes": []string{"Ingress"}, "ingress": ingress,
	}}
}

// withOwn returns the namespaces whose pods may use the services of peers, sorted: the gateway's
// and others.
func withOwn(own string, others []string) []string {
	out := append([]string{own}, others...)
	slices.Sort(out)
	return slices.Compact(out)
}

// labels returns those of our objects for a peer.
func (k *Keeper) labels(peer string) map[string]string {
	return map[string]string{labelName: program, labelInstance: k.o.Release, labelManagedBy: program, LabelPeer: peer}
}

// ours reports whether an object may be touched.
func (k *Keeper) ours(labels map[string]string, peer string) bool {
	want := k.labels(peer)
	return maps.Equal(want, map[string]string{labelName: labels[labelName], labelInstance: labels[labelInstance],
		labelManagedBy: labels[labelManagedBy], LabelPeer: labels[LabelPeer]})
}

// body returns an object as it is applied. uid is the existing object's; empty if there is none.
func (k *Keeper) body(version string, o object, uid string) map[string]any {
	meta := map[string]any{"name": o.name, "namespace": k.o.Namespace, "labels": k.labels(o.peer)}
	if uid != "" {
		meta["uid"] = uid
	}
	if w := k.o.Owner; w.UID != "" {
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": w.APIVersion, "kind": w.Kind, "name": w.Name, "uid": w.UID}}
	}
	out := map[string]any{"apiVersion": version, "kind": o.kind, "metadata": meta}
	maps.Copy(out, o.spec)
	return out
}
