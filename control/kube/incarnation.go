package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/kube/mirror"
)

// incarnations follow the accounts: deleting one ends its tokens, and otherwise the peer would only
// find out by being rejected.
type incarnations struct {
	copy atomic.Pointer[mirror.Mirror[*corev1.ServiceAccount]]
}

// run watches until ctx ends. Without the right to watch nothing is known, and everything else
// still works.
func (i *incarnations) run(ctx context.Context, a accounts, o TokenIssuerOptions) {
	blind := blindness{log: o.Logger, accounts: a}
	client, err := a.cluster.Group(corev1.SchemeGroupVersion, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{})
	if err != nil {
		blind.note(err)
		return
	}
	var m *mirror.Mirror[*corev1.ServiceAccount]
	m = mirror.New(mirror.Options[*corev1.ServiceAccount]{
		Client: client, Resource: resource, Namespace: a.namespace, List: &corev1.ServiceAccountList{},
		Changed: func() { // callers ask every few seconds anyway
			if ctx.Err() == nil {
				blind.note(m.Err())
			}
		},
		Logger: o.Logger,
	})
	i.copy.Store(m)
	m.Run(ctx)
}

// blindness logs why the accounts are not watched: each kind of error once until they are.
type blindness struct {
	log      *slog.Logger
	accounts accounts

	mu   sync.Mutex
	told map[metav1.StatusReason]bool // the empty reason: no answer
}

// note records the result of the last request.
func (b *blindness) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reason := apierrors.ReasonForError(err)
	switch {
	case err == nil && len(b.told) > 0:
		b.told = nil
		b.log.Info("watching the accounts of peers", "namespace", b.accounts.namespace)
	case err != nil && !b.told[reason]:
		if b.told == nil {
			b.told = map[metav1.StatusReason]bool{}
		}
		b.told[reason] = true
		b.log.Warn("cannot watch the accounts of peers; a peer whose account is deleted learns it when its token is refused",
			"namespace", b.accounts.namespace, "error", fmt.Errorf("%w%s", err, b.accounts.fix(err)))
	}
}

// Incarnation returns the UID of the peer's account, empty if there is none; known is false until
// the accounts have been seen.
func (t *TokenIssuer) Incarnation(s auth.Subject) (id string, known bool) {
	m := t.incarnations.copy.Load()
	if m == nil {
		return "", false
	}
	x, synced := m.Get(nameOf(s))
	if x == nil || !t.accounts.ours(x) || x.Labels[labelPeer] != s.Name || x.Annotations[annotationKey] != s.PublicKey.String() || x.DeletionTimestamp != nil {
		return "", synced
	}
	return string(x.UID), synced
}
