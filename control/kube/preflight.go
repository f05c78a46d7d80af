package kube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
)

// nobody is no peer's name, which is a DNS label, and makes a name for an account all the
// same, which may have dots.
const nobody = "nobody.preflight"

// preflight finds what would keep the issuer from issuing before a peer does: it asks for
// an account without having it made, and for a token of one that is not there.
func (a accounts) preflight(ctx context.Context) error {
	want := a.wanted(auth.Subject{Name: nobody})
	want.Labels = nil // a label's value may hold no more than a peer's name
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	err := a.cluster.core.Post().Namespace(a.namespace).Resource(resource).
		VersionedParams(&dryRun, metav1.ParameterCodec).Body(want).Do(ctx).Error()
	if err != nil {
		return err
	}
	err = a.cluster.core.Post().Namespace(a.namespace).Resource(resource).Name(want.Name).SubResource("token").
		VersionedParams(&dryRun, metav1.ParameterCodec).
		Body(&authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"},
		}).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
