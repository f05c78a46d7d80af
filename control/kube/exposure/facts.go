package exposure

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/postern-dev/postern/control/kube/mirror"
)

// facts are what is known about the cluster at one time.
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

	// configured is the configured address of the API server, located the cluster's answer about
	// it.
	configured string
	located    location
	// astray: the Service's selector matches neither the active pod nor any other.
	astray bool
	// pendingSince is when the LoadBalancer was first seen without an address; zero if it has had
	// none since its creation.
	pendingSince time.Time
}

// known is what is known about the objects of one kind.
type known[T any] struct {
	list []T
	// read: they have been listed. If neither read nor denied, they are still unknown.
	read bool
	// denied: the API server refuses to list or watch them.
	denied bool
}

// mirrored returns the content of a mirror.
func mirrored[T mirror.Object](m *mirror.Mirror[T]) known[T] {
	list, read := m.Objects()
	return known[T]{list: list, read: read, denied: m.Denied()}
}

// settled reports whether the objects are known, or cannot be read.
func (k known[T]) settled() bool { return k.read || k.denied }

// named returns an object by name.
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
	// wantNodes: the nodes' addresses matter.
	wantNodes bool
	// pending: the Service is a LoadBalancer without an address.
	pending bool
	// again is when the mere passage of time changes something; zero means never.
	again time.Time
}

// derive derives the exposure. It keeps no references to facts.
func derive(f facts, now time.Time) derived {
	var d derived
	f.gateway(&d, now)
	f.authService(&d)
	f.apiServer(&d)
	return d
}
