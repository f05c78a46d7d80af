package kube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
)

// nobody cannot be a peer's name, which is a DNS label, but can be part of an account's name, which
// may have dots.
const nobody = "nobody.preflight"

// preflight finds what would keep the issuer from issuing before a peer does: it makes dry-run
// requests for an account, and for a token of a missing one.
func (a accounts) preflight(ctx context.Context) error {
	want := a.wanted(auth.Subject{Name: nobody})
	want.Labels = nil // a label's value may be no longer than a peer's name
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
