package tickets

import (
	"strings"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// sourceFailed is the source of problems of failed Tickets, and checkFailed this gateway's own check that
// shows them until they are deleted: there is no peer that a check could be about.
const (
	sourceFailed = "failed-tickets"
	checkFailed  = "tickets"
)

// tellFailed reports failed Tickets to the gateway's own checks.
func (c *Controller) tellFailed(list []*v1alpha1.Ticket) {
	var found []check.OwnProblem
	for _, o := range list {
		s := o.Status
		if written := c.of(o).written; written != nil {
			s = *written
		}
		if s.Phase == v1alpha1.TicketFailed && o.DeletionTimestamp == nil {
			found = append(found, check.OwnProblem{Name: checkFailed, Code: catalogue.TicketRefused, Params: failedParams(o, s.Message)})
		}
	}
	c.SetProblems(sourceFailed, found)
}

// failedParams returns the parameters of the verdict on a Ticket. After a restart only the
// message in its status is left, which [coded] created.
func failedParams(o *v1alpha1.Ticket, message string) catalogue.Params {
	var p catalogue.Params
	p.Namespace, p.Object, p.Field = o.Namespace, "Ticket "+o.Name, o.Name
	cause, _ := catalogue.Render(catalogue.TicketRefused, p)
	if _, rest, ok := strings.Cut(message, cause+": "); ok {
		p.Detail, _, _ = strings.Cut(rest, ". Fix: ")
	}
	return p
}
