package access

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// A quota or a webhook refuses a peer's Service: the gateway lacks no right, and must not ask for one.
func TestARefusedServiceIsNoMissingRight(t *testing.T) {
	answer := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
	}
	for name, c := range map[string]struct {
		err  error
		code catalogue.Code // empty: it is tried again soon
		fix  string
	}{
		"a quota": {answer(http.StatusForbidden, metav1.StatusReasonForbidden, `services "postern-cloud" is forbidden: exceeded quota: small, requested: services=1`),
			catalogue.ClusterRefuses, "kubectl describe quota -n postern"},
		"a webhook that is down": {answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "owner.example.net": connection refused`),
			catalogue.ClusterRefuses, "webhookconfigurations"},
		"no right": {answer(http.StatusForbidden, metav1.StatusReasonForbidden, `services is forbidden: User "system:serviceaccount:postern:gateway" cannot patch resource "services" in API group "" in the namespace "postern"`),
			catalogue.ClusterForbidden, "--verb=get,list,create,patch,delete --resource=services"},
		"no answer": {errors.New("connection refused"), "", ""},
	} {
		k := &Keeper{o: Options{Namespace: "postern", Account: "postern:gateway"}, kinds: []*kind{{name: "Service", resource: "services"}}, refused: map[id]check.OwnProblem{}}
		err := k.settled(object{id: id{"Service", "postern-cloud"}, peer: "cloud"}, c.err)
		got := k.found()
		if c.code == "" {
			if err == nil || len(got) > 0 {
				t.Errorf("%s: %v, %v; want a retry", name, err, got)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].Code != c.code || got[0].Name != NameAccess {
			t.Errorf("%s: %v, %+v", name, err, got)
			continue
		}
		cause, fix := catalogue.Render(got[0].Code, got[0].Params)
		if !strings.Contains(cause, "postern-cloud") || !strings.Contains(fix.String(), c.fix) {
			t.Errorf("%s: %s\n%s", name, cause, fix)
		}
	}
}
