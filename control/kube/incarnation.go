package kube

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/kube/mirror"
)

// incarnations follow the accounts: one that anybody deletes takes its tokens along, and whose
// they are would find out by being refused.
type incarnations struct {
	copy atomic.Pointer[mirror.Mirror[*corev1.ServiceAccount]]
}

// run watches until ctx ends. Without the right to, nothing is known, and all else goes on.
func (i *incarnations) run(ctx context.Context, a accounts, o TokenIssuerOptions) {
	client, err := a.cluster.Group(corev1.SchemeGroupVersion, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{})
	if err != nil {
		o.Logger.Warn("the accounts of peers are not watched: who deletes one has to tell the peer", "namespace", a.namespace, "error", err)
		return
	}
	m := mirror.New(mirror.Options[*corev1.ServiceAccount]{
		Client: client, Version: corev1.SchemeGroupVersion, Resource: resource, Namespace: a.namespace,
		Example: &corev1.ServiceAccount{}, NewList: func() runtime.Object { return &corev1.ServiceAccountList{} },
		Changed: func() {}, Logger: o.Logger, // who asks comes every few seconds
	})
	i.copy.Store(m)
	m.Run(ctx)
}

// Incarnation is the UID of the peer's account, empty while there is none; known is false until
// the accounts have been seen.
func (t *TokenIssuer) Incarnation(s auth.Subject) (id string, known bool) {
	m := t.incarnations.copy.Load()
	if m == nil {
		return "", false
	}
	list, synced := m.Objects()
	for _, x := range list {
		if t.accounts.ours(x) && x.Labels[labelPeer] == s.Name && x.Annotations[annotationKey] == s.PublicKey.String() && x.DeletionTimestamp == nil {
			return string(x.UID), synced
		}
	}
	return "", synced
}
