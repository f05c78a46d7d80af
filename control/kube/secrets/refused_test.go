package secrets

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
)

// What refuses a write is told with the error, so that the check does not ask for rights that are there.
func TestARefusedWriteSaysWhatRefusesIt(t *testing.T) {
	for name, c := range map[string]struct {
		err error
		fix string
	}{
		"immutable": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: "Secret \"postern-state-peers\" is invalid: data: Forbidden: field is immutable when `immutable` is set"}}, "`kubectl delete secret postern-state-peers -n tenant`"},
		"a quota": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `secrets "postern-state-peers" is forbidden: exceeded quota: small, requested: secrets=1`}}, "`kubectl describe quota -n tenant`"},
		"a webhook": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `admission webhook "owner.example.net" denied the request: this cannot be changed on a Friday`}}, "policy that the cause names"},
		"no right": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `secrets "postern-state-peers" is forbidden: User "system:serviceaccount:tenant:postern" cannot update resource "secrets" in API group "" in the namespace "tenant"`}}, "helm upgrade RELEASE CHART -n tenant --reuse-values"},
		"no answer":          {errors.New("it says nothing"), "`kubectl describe role -n tenant`"},
		"nobody listens":     {fmt.Errorf("dial: %w", syscall.ECONNREFUSED), "check that the API server runs"},
		"too many requests":  {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTooManyRequests, Message: "later"}}, "dump_priority_levels"},
		"more than it holds": {fmt.Errorf("%w: peers.json would make it 1100000 bytes", ErrTooLarge), "remove peers or tickets that nobody needs"},
	} {
		b := &Backend{namespace: "tenant"}
		err := b.explain("write", "postern-state-peers", c.err)
		var refused interface{ Params() catalogue.Params }
		if !errors.As(err, &refused) || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.err.Error()) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if right := strings.Contains(err.Error(), "the gateway's Role needs"); right != (name == "no right") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, fix := catalogue.Render(catalogue.StateNotKept, refused.Params()); !strings.Contains(fix.String(), c.fix) || !strings.Contains(fix.String(), "repeat what was refused") {
			t.Errorf("%s: got the fix %q, want %q in it", name, fix, c.fix)
		}
	}
}
