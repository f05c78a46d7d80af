package tickets

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/ticket"
)

// invite advances an invitation, and returns its status. An error is a failed request to the API
// server.
func (c *Controller) invite(ctx context.Context, o *v1alpha1.Ticket) (v1alpha1.TicketStatus, error) {
	if terminal(o.Status.Phase) {
		return o.Status, c.tidy(ctx, o)
	}
	standing, made := c.standing(o)
	if !made {
		if o.Status.ID != "" { // the book has dropped it
			return c.ended(o, o.Status, v1alpha1.TicketExpired, "the gateway does not know the ticket any more; make another Ticket"), c.tidy(ctx, o)
		}
		return c.make(ctx, o)
	}
	s := statusFor(o)
	s.ID, s.ExpiresAt = standing.ID.String(), at(standing.ExpiresAt)
	s.Peer, s.RedeemedBy = standing.Peer, ""
	if !standing.RedeemedBy.IsZero() {
		s.RedeemedBy = standing.RedeemedBy.String()
	}
	switch standing.State {
	case ticket.Open:
		return c.open(ctx, o, s)
	case ticket.Redeemed, ticket.Finished, ticket.Closed:
		text := fmt.Sprintf("redeemed by peer %s: kubectl get peers.postern.dev %s -n %s", s.Peer, s.Peer, o.Namespace)
		if standing.Approve && standing.State == ticket.Redeemed {
			text = fmt.Sprintf("redeemed by peer %s, which may wait for its key to be confirmed: kubectl describe peers.postern.dev %s -n %s", s.Peer, s.Peer, o.Namespace)
		}
		return c.ended(o, s, v1alpha1.TicketRedeemed, text), c.tidy(ctx, o)
	case ticket.Burned:
		return c.refused(o, s, ticket.ErrBurned), c.tidy(ctx, o)
	}
	return c.ended(o, s, v1alpha1.TicketExpired, "nobody redeemed it in time; delete it and make another"), c.tidy(ctx, o)
}

// standing returns the book's state of the object's ticket.
func (c *Controller) standing(o *v1alpha1.Ticket) (ticket.Standing, bool) {
	for _, s := range c.gateway.Tickets() {
		if o.Status.ID != "" && s.ID.String() == o.Status.ID || o.Status.ID == "" && s.Object == string(o.UID) && !c.revoked[s.ID] {
			return s, true
		}
	}
	return ticket.Standing{}, false
}

// open ensures that the text of an open ticket is in its Secret. A lost text cannot be recovered:
// the ticket is revoked, and another one created.
func (c *Controller) open(ctx context.Context, o *v1alpha1.Ticket, s v1alpha1.TicketStatus) (v1alpha1.TicketStatus, error) {
	x, err := c.secrets.own(ctx, o)
	if err != nil {
		return o.Status, err
	}
	if x == nil || string(x.Data[secretID]) != s.ID {
		if err := c.revoke(s.ID); err != nil {
			return o.Status, err
		}
		c.Log.Info("replaced a ticket whose text was lost", "ticket", s.ID, "object", o.Name)
		return c.make(ctx, o)
	}
	s.Phase, s.SecretRef = v1alpha1.TicketOpen, &v1alpha1.SecretKey{Name: x.Name, Key: v1alpha1.SecretTicket}
	s.Message = fmt.Sprintf("hand the text over: kubectl get secret %s -n %s -o jsonpath='{.data.%s}' | base64 -d", x.Name, o.Namespace, v1alpha1.SecretTicket)
	return ready(o, s, metav1.ConditionTrue, v1alpha1.TicketOpen, "it can be redeemed"), nil
}

// make creates the ticket and stores its text.
func (c *Controller) make(ctx context.Context, o *v1alpha1.Ticket) (v1alpha1.TicketStatus, error) {
	i := o.Spec.Invite
	s := statusFor(o)
	s.ID, s.ExpiresAt, s.SecretRef = "", nil, nil
	if x, err := c.secrets.own(ctx, o); errors.Is(err, errForeign) {
		return c.refused(o, s, err), nil
	} else if err != nil {
		return o.Status, err
	} else if x != nil {
		if err := c.secrets.delete(ctx, x); err != nil {
			return o.Status, err
		}
	}
	ttl, err := parseTTL(i.TTL)
	if err != nil {
		return c.refused(o, s, err), nil
	}
	made, err := c.gateway.InviteFor(ctx, api.InviteRequest{
		Name: i.Name, TTL: api.Duration(ttl), For: i.For, Allow: i.Allow, Approve: i.Approve,
	}, string(o.UID))
	if err != nil {
		return c.notYet(o, s, err), nil
	}
	if err := c.secrets.put(ctx, o, map[string][]byte{v1alpha1.SecretTicket: []byte(made.Ticket), secretID: []byte(made.ID)}); err != nil {
		if revoked := c.revoke(made.ID); revoked != nil {
			err = errors.Join(err, revoked)
		}
		return o.Status, err
	}
	s.ID, s.ExpiresAt = made.ID, at(made.ExpiresAt)
	s, err = c.open(ctx, o, s)
	for _, w := range made.Warnings {
		s.Message += "; " + w
	}
	return s, err
}

// notYet returns the status after the gateway refused to create the ticket: final if the request
// is invalid, otherwise to be retried.
func (c *Controller) notYet(o *v1alpha1.Ticket, s v1alpha1.TicketStatus, err error) v1alpha1.TicketStatus {
	if problem, ok := errors.AsType[*admin.Error](err); ok && problem.Usage {
		return c.refused(o, s, err)
	}
	s.Phase = v1alpha1.TicketPending
	s.Message = err.Error()
	return ready(o, s, metav1.ConditionFalse, reasonWaits, err.Error()+"; it is tried again")
}

// revoke ends a ticket, and remembers for a moment that it no longer belongs to the object.
func (c *Controller) revoke(id string) error {
	if err := c.gateway.Revoke(id); err != nil {
		return err
	}
	if parsed, err := ticket.ParseID(id); err == nil {
		c.revoked[parsed] = true
	}
	return nil
}

// revokeOrphans ends the open tickets of deleted objects.
func (c *Controller) revokeOrphans(list []*v1alpha1.Ticket) {
	uids := map[string]bool{}
	for _, o := range list {
		uids[string(o.UID)] = true
	}
	for _, s := range c.gateway.Tickets() {
		if s.Object == "" || s.State != ticket.Open || uids[s.Object] {
			continue
		}
		if err := c.gateway.Revoke(s.ID.String()); err != nil {
			c.Log.Warn("failed to revoke the ticket of a deleted object; will retry", "ticket", s.ID.String(), "error", err)
			continue
		}
		c.Log.Info("revoked the ticket of a deleted object", "ticket", s.ID.String())
	}
}

// parseTTL parses a lifetime; 0 means the gateway's default.
func parseTTL(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("spec.invite.ttl: %q is not a duration such as 24h", s)
	}
	return d, nil
}
