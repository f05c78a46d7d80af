package tickets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

const (
	// secretPrefix is the prefix of the name of a Ticket's Secret, labelTicket marks it.
	secretPrefix = "postern-ticket-"
	labelTicket  = "postern.dev/ticket"
	// secretID is the ticket's ID in the Secret's data.
	secretID = "id"
	// secretUse is the label value of Secrets for Tickets.
	secretUse = "ticket"

	requestTimeout = 5 * time.Second
	resource       = "secrets"
)

// errForeign: a Secret has the required name, and is not this Ticket's.
var errForeign = errors.New("is there and belongs to something else (delete it, or make a Ticket of another name)")

// secrets reads and writes Secrets.
type secrets struct {
	client    rest.Interface
	namespace string
}

// text returns the ticket to join with.
func (s *secrets) text(ctx context.Context, ref v1alpha1.SecretKey) (string, error) {
	x, err := s.get(ctx, ref.Name)
	if err != nil {
		return "", err
	}
	if err := objects.MayName(x, secretUse); err != nil {
		return "", err
	}
	text, ok := x.Data[ref.Key]
	if !ok {
		return "", fmt.Errorf("it has no such key (it has %v)", slices.Sorted(maps.Keys(x.Data)))
	}
	return string(text), nil
}

func (s *secrets) get(ctx context.Context, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var x corev1.Secret
	err := s.client.Get().Namespace(s.namespace).Resource(resource).Name(name).Do(ctx).Into(&x)
	return &x, err
}

// own returns the Ticket's Secret; nil if there is none. It deletes one that belongs to an
// earlier Ticket of the same name.
func (s *secrets) own(ctx context.Context, o *v1alpha1.Ticket) (*corev1.Secret, error) {
	x, err := s.get(ctx, secretPrefix+o.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case ownedBy(x, o):
		return x, nil
	case x.Labels[labelTicket] == o.Name:
		return nil, s.delete(ctx, x)
	}
	return nil, fmt.Errorf("the Secret %s %w", x.Name, errForeign)
}

func ownedBy(x *corev1.Secret, o *v1alpha1.Ticket) bool {
	return x.Labels[labelTicket] == o.Name &&
		slices.ContainsFunc(x.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == o.UID })
}

// put sets the data of the Ticket's Secret.
func (s *secrets) put(ctx context.Context, o *v1alpha1.Ticket, data map[string][]byte) error {
	have, err := s.own(ctx, o)
	if err != nil {
		return err
	}
	x := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: secretPrefix + o.Name, Namespace: s.namespace, Labels: map[string]string{labelTicket: o.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.TicketKind, Name: o.Name, UID: o.UID,
			}},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if have == nil {
		return s.client.Post().Namespace(s.namespace).Resource(resource).Body(x).Do(ctx).Error()
	}
	x.ResourceVersion = have.ResourceVersion
	return s.client.Put().Namespace(s.namespace).Resource(resource).Name(x.Name).Body(x).Do(ctx).Error()
}

// drop deletes the Ticket's Secret, if it exists.
func (s *secrets) drop(ctx context.Context, o *v1alpha1.Ticket) error {
	x, err := s.own(ctx, o)
	if err != nil || x == nil {
		if errors.Is(err, errForeign) {
			return nil
		}
		return err
	}
	return s.delete(ctx, x)
}

func (s *secrets) delete(ctx context.Context, x *corev1.Secret) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := x.UID
	err := s.client.Delete().Namespace(s.namespace).Resource(resource).Name(x.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
