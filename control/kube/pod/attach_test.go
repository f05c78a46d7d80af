package pod

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// A gateway says that its pod cannot be labelled, also if that was known before it was attached, and
// what that means.
func TestAGatewayWhosePodCannotBeLabelledSaysSo(t *testing.T) {
	var l label
	var told []check.OwnProblem
	l.refused(labelProblem(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "postern-0",
		errors.New(`User "system:serviceaccount:tenant:postern" cannot patch resource "pods" in API group "" in the namespace "tenant"`)), "postern-0", "tenant"))
	l.attach(func(list []check.OwnProblem) { told = list })
	if len(told) != 1 || told[0].Code != catalogue.ClusterForbidden {
		t.Fatalf("got %+v", told)
	}
	cause, fix := catalogue.Render(told[0].Code, told[0].Params)
	if !strings.Contains(cause, "may not patch pods in namespace tenant") || !strings.Contains(cause, "no Service leads to it") || !strings.Contains(fix.String(), "--verb=patch --resource=pods") {
		t.Errorf("got %s\n%s", cause, fix)
	}
	l.refused(labelProblem(nil, "postern-0", "tenant"))
	if len(told) > 0 {
		t.Errorf("it is over, and told: %+v", told)
	}
	l.attach(nil)
	l.refused(labelProblem(errors.New("connection refused"), "postern-0", "tenant"))
	if len(told) > 0 {
		t.Errorf("a gateway that ended is told: %+v", told)
	}
}
