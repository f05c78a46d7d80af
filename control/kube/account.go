package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/auth"
)

const (
	// labelPeer and labelGateway identify our objects.
	labelPeer    = "postern.dev/peer"
	labelGateway = "postern.dev/gateway"
	// annotationKey is the peer's public key, in base64, which a label could not hold.
	annotationKey = "postern.dev/public-key"
	// accountPrefix is the prefix of every account's name; the identity name follows.
	accountPrefix = "postern-peer-"

	resource = "serviceaccounts"
	// pageSize bounds a list's pages.
	pageSize = 500
)

// errForeign: an object with a name that we need is not ours.
var errForeign = errors.New("not this gateway's")

// nameOf returns the name of a peer's account.
func nameOf(s auth.Subject) string { return accountPrefix + s.IdentityName() }

// accounts are the ServiceAccounts of one gateway's peers.
type accounts struct {
	cluster            *Cluster
	namespace, gateway string
}

// wanted returns the account that a peer should have.
func (a accounts) wanted(s auth.Subject) *corev1.ServiceAccount {
	no := false
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Name: nameOf(s), Namespace: a.namespace,
			Labels:      map[string]string{labelPeer: s.Name, labelGateway: a.gateway},
			Annotations: map[string]string{annotationKey: s.PublicKey.String()},
		},
		AutomountServiceAccountToken: &no,
	}
}

// ours reports whether an account may be touched.
func (a accounts) ours(x *corev1.ServiceAccount) bool {
	return x.Labels[labelGateway] == a.gateway && x.Labels[labelPeer] != "" && strings.HasPrefix(x.Name, accountPrefix)
}

// ensureTries bounds the retries for an account that someone else changes at the same time.
const ensureTries = 4

// ensure creates the account of a peer unless it exists, and returns its UID. An account for
// another key is replaced.
func (a accounts) ensure(ctx context.Context, s auth.Subject) (types.UID, error) {
	want := a.wanted(s)
	for range ensureTries {
		var have corev1.ServiceAccount
		err := a.cluster.core.Get().Namespace(a.namespace).Resource(resource).Name(want.Name).Do(ctx).Into(&have)
		switch {
		case apierrors.IsNotFound(err):
			var made corev1.ServiceAccount
			err = a.cluster.core.Post().Namespace(a.namespace).Resource(resource).Body(want).Do(ctx).Into(&made)
			if err == nil {
				return made.UID, nil
			}
			if !apierrors.IsAlreadyExists(err) {
				return "", err
			}
		case err != nil:
			return "", err
		case !a.ours(&have):
			return "", a.foreign(&have)
		case have.DeletionTimestamp != nil:
			return "", fmt.Errorf("ServiceAccount %s/%s is being deleted, and waits for its finalizers %v", a.namespace, have.Name, have.Finalizers)
		case have.Annotations[annotationKey] == s.PublicKey.String():
			return have.UID, nil
		default:
			if err := a.delete(ctx, &have); err != nil {
				return "", err
			}
		}
	}
	return "", fmt.Errorf("ServiceAccount %s/%s changes all the time: something else makes or deletes it", a.namespace, want.Name)
}

func (a accounts) foreign(x *corev1.ServiceAccount) error {
	if other := x.Labels[labelGateway]; other != "" && other != a.gateway {
		return fmt.Errorf("%w: ServiceAccount %s/%s belongs to gateway %q (give each gateway a namespace of its own: spec.services.auth.issuer.serviceAccount.namespace; or delete it if that gateway is gone)",
			errForeign, a.namespace, x.Name, other)
	}
	return fmt.Errorf("%w: ServiceAccount %s/%s has no label %s=%s (delete it, or rename the peer)", errForeign, a.namespace, x.Name, labelGateway, a.gateway)
}

// token requests a token of exactly the account with this UID.
func (a accounts) token(ctx context.Context, s auth.Subject, uid types.UID, seconds int64) (*authenticationv1.TokenRequest, error) {
	name := nameOf(s)
	q := &authenticationv1.TokenRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.namespace, UID: uid},
		Spec:       authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	var out authenticationv1.TokenRequest
	err := a.cluster.core.Post().Namespace(a.namespace).Resource(resource).Name(name).SubResource("token").Body(q).Do(ctx).Into(&out)
	return &out, err
}

// list lists the accounts of this gateway.
func (a accounts) list(ctx context.Context) ([]corev1.ServiceAccount, error) {
	var out []corev1.ServiceAccount
	o := metav1.ListOptions{LabelSelector: labelGateway + "=" + a.gateway + "," + labelPeer, Limit: pageSize}
	for {
		var page corev1.ServiceAccountList
		if err := a.cluster.core.Get().Namespace(a.namespace).Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&page); err != nil {
			return nil, err
		}
		for _, x := range page.Items {
			if a.ours(&x) {
				out = append(out, x)
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return out, nil
		}
	}
}

// delete deletes exactly this account. It is no error if it is gone.
func (a accounts) delete(ctx context.Context, x *corev1.ServiceAccount) error {
	err := a.cluster.core.Delete().Namespace(a.namespace).Resource(resource).Name(x.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &x.UID}}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or replaced
		return nil
	}
	return err
}
