package exposure

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/postern-dev/postern/control/kube/mirror"
)

// facts are what is known about the cluster at one moment.
type facts struct {
	namespace string
	service   string // the gateway's Service
	auth      string // auth's; empty when it is not exposed
	port      uint16 // the gateway's UDP port
	account   string // this gateway's ServiceAccount, namespace:name, for messages; may be empty

	services  known[*corev1.Service]
	pods      known[*corev1.Pod] // the active one
	nodes     known[*corev1.Node]
	ingresses known[*networkingv1.Ingress]

	// configured is the API server's address as the configuration has it; located is what
	// the cluster says of it, and whether it could be asked.
	configured string
	located    location
	// pendingSince is when the LoadBalancer was first seen without an address; zero when the
	// Service has been so since it was made.
	pendingSince time.Time
}

// known is what is known about the objects of one kind.
type known[T any] struct {
	list []T
	// read: they have been listed. Without it and without denied, nobody knows yet.
	read bool
	// denied: the API server refuses to list or to watch them.
	denied bool
}

// mirrored is what a mirror holds.
func mirrored[T mirror.Object](m *mirror.Mirror[T]) known[T] {
	list, read := m.Objects()
	return known[T]{list: list, read: read, denied: m.Denied()}
}

// settled reports whether it is known what there is, or that it cannot be.
func (k known[T]) settled() bool { return k.read || k.denied }

// named finds an object.
func named[T interface{ GetName() string }](k known[T], name string) (found T, ok bool) {
	for _, x := range k.list {
		if x.GetName() == name {
			return x, true
		}
	}
	return found, false
}

// derived is what follows from facts.
type derived struct {
	Exposure
	// wantNodes: the addresses of nodes matter.
	wantNodes bool
	// pending: the Service is a LoadBalancer without an address.
	pending bool
	// again is when time alone changes something; zero = never.
	again time.Time
}

// derive makes the exposure of what is known. It keeps nothing of facts.
func derive(f facts, now time.Time) derived {
	var d derived
	f.gateway(&d, now)
	f.authService(&d)
	f.apiServer(&d)
	return d
}
