package tickets

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// Reasons of the condition that are not phases.
const (
	reasonWaits         = "Waits"
	reasonTicketRefused = "TicketRefused"
	reasonSecret        = "SecretUnusable"
)

// terminal reports whether a Ticket's phase is final.
func terminal(phase string) bool {
	switch phase {
	case v1alpha1.TicketRedeemed, v1alpha1.TicketExpired, v1alpha1.TicketJoined, v1alpha1.TicketFailed:
		return true
	}
	return false
}

// statusFor returns an object's status for its current generation.
func statusFor(o *v1alpha1.Ticket) v1alpha1.TicketStatus {
	s := *o.Status.DeepCopy()
	s.ObservedGeneration = o.Generation
	return s
}

// ready sets the condition.
func ready(o *v1alpha1.Ticket, s v1alpha1.TicketStatus, is metav1.ConditionStatus, reason, text string) v1alpha1.TicketStatus {
	x := metav1.Condition{Type: v1alpha1.TicketReady, Status: is, Reason: reason, Message: text,
		ObservedGeneration: o.Generation, LastTransitionTime: metav1.NewTime(time.Now())}
	s.Conditions = []metav1.Condition{objects.Since(o.Status.Conditions, x)}
	return s
}

// ended returns the status of a Ticket in a final phase.
func (c *Controller) ended(o *v1alpha1.Ticket, s v1alpha1.TicketStatus, phase, text string) v1alpha1.TicketStatus {
	s.ObservedGeneration = o.Generation
	s.Phase, s.Message, s.SecretRef = phase, text, nil
	is := metav1.ConditionTrue
	if phase == v1alpha1.TicketExpired {
		is = metav1.ConditionFalse
	}
	return ready(o, s, is, phase, text)
}

// refused returns the status of a Ticket that has failed and is not retried.
func (c *Controller) refused(o *v1alpha1.Ticket, s v1alpha1.TicketStatus, err error) v1alpha1.TicketStatus {
	s.Phase, s.SecretRef = v1alpha1.TicketFailed, nil
	text := coded(o, catalogue.TicketRefused, o.Name, "", err)
	s.Message = text
	return ready(o, s, metav1.ConditionFalse, reasonTicketRefused, text)
}

// coded returns a problem of a Ticket with its code, cause and fix. file and field are a Secret
// and its key, or the object's own name.
func coded(o *v1alpha1.Ticket, code catalogue.Code, field, file string, err error) string {
	var p catalogue.Params
	p.Namespace, p.Object, p.Field, p.File, p.Detail = o.Namespace, "Ticket "+o.Name, field, file, err.Error()
	cause, fix := catalogue.Render(code, p)
	return string(code) + ": " + cause + ". Fix: " + fix.String()
}

// tidy deletes the Secret of a Ticket in a final phase: its text is useless.
func (c *Controller) tidy(ctx context.Context, o *v1alpha1.Ticket) error {
	x := c.of(o)
	if x.tidied {
		return nil
	}
	if err := c.secrets.drop(ctx, o); err != nil {
		return err
	}
	x.tidied = true
	return nil
}

// same reports whether two statuses are equal.
func same(a, b v1alpha1.TicketStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.Phase != b.Phase || a.ID != b.ID || a.Peer != b.Peer ||
		a.RedeemedBy != b.RedeemedBy || a.Message != b.Message || !a.ExpiresAt.Equal(b.ExpiresAt) ||
		(a.SecretRef == nil) != (b.SecretRef == nil) || a.SecretRef != nil && *a.SecretRef != *b.SecretRef || len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for i, x := range a.Conditions {
		y := b.Conditions[i]
		if x.Type != y.Type || x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message || x.ObservedGeneration != y.ObservedGeneration {
			return false
		}
	}
	return true
}

func at(t time.Time) *metav1.Time {
	x := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &x
}
