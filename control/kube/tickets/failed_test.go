package tickets

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// problemsOf records the problems that a controller reports; other methods are not implemented.
type problemsOf struct {
	Gateway
	told map[string][]check.OwnProblem
	n    int
}

func (g *problemsOf) SetProblems(source string, list []check.OwnProblem) {
	g.told[source] = list
	g.n++
}

// A failed Ticket is shown by a check until it is deleted, even by a gateway that only has the
// object's status.
func TestAFailedTicketIsAVerdict(t *testing.T) {
	g := &problemsOf{told: map[string][]check.OwnProblem{}}
	c, err := New(Options{Cluster: unasked{}, Gateway: g})
	if err != nil {
		t.Fatal(err)
	}
	ticket := func(name, phase, message string) *v1alpha1.Ticket {
		return &v1alpha1.Ticket{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "postern", UID: types.UID(name)},
			Status: v1alpha1.TicketStatus{Phase: phase, Message: message}}
	}
	o := ticket("cloud", "", "")
	why := "there is a peer cloud with another key already (choose another name: --name NAME)"
	o.Status = c.refused(o, o.Status, errors.New(why))
	list := []*v1alpha1.Ticket{ticket("open", v1alpha1.TicketOpen, ""), o, ticket("done", v1alpha1.TicketJoined, "")}
	for range 2 {
		c.tellFailed(list)
	}
	told := g.told[sourceFailed]
	if len(told) != 1 || g.n != 1 {
		t.Fatalf("told %d times, last %+v; want the failed Ticket once", g.n, told)
	}
	cause, fix := catalogue.Render(told[0].Code, told[0].Params)
	if told[0].Code != catalogue.TicketRefused || !strings.HasSuffix(cause, why) || !strings.Contains(fix.String(), "kubectl delete tickets.postern.dev cloud -n postern") {
		t.Errorf("%s: cause %q, fix %q; want the reason %q, and how to delete it", told[0].Code, cause, fix, why)
	}
	if got := catalogue.Severity(told[0].Code); got != "warning" {
		t.Errorf("it is a %s, want a warning: no peer is worse off for it", got)
	}
	c.tellFailed(list[:1])
	if told := g.told[sourceFailed]; len(told) != 0 {
		t.Errorf("after the Ticket was deleted: %+v", told)
	}
}

// unasked is a cluster that gets no requests.
type unasked struct{}

func (unasked) Namespace() string                                                    { return "postern" }
func (unasked) Group(schema.GroupVersion, ...runtime.Object) (rest.Interface, error) { return nil, nil }
