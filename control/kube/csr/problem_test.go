package csr

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
)

// A right that is missing is given by the ClusterRole; what a webhook says is not, whatever it says.
func TestAMissingRightIsToldFromARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		message         string
		code            catalogue.Code
		verbs, resource string
	}{
		"no right": {`certificatesigningrequests.certificates.k8s.io is forbidden: User "system:serviceaccount:postern:postern" cannot create resource "certificatesigningrequests" in API group "certificates.k8s.io" at the cluster scope`,
			catalogue.CSRForbidden, "create", "certificatesigningrequests.certificates.k8s.io"},
		"no right to approve": {`certificatesigningrequests.certificates.k8s.io "postern-edge" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`,
			catalogue.CSRForbidden, "approve", "signers/kubernetes.io/kube-apiserver-client"},
		"a webhook": {`admission webhook "owner.example.net" denied the request: requests cannot be made on a Friday`, catalogue.CSRDenied, "", ""},
	} {
		err := explain(&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: c.message}}, "postern-edge")
		var p *problem
		if !errors.As(err, &p) || p.code != c.code || p.verbs != c.verbs || p.resource != c.resource {
			t.Errorf("%s: got %+v, %v", name, p, err)
		}
	}
}
