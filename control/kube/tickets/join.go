package tickets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// joinWait bounds one join, maxJoins the number of concurrent ones.
	joinWait = 30 * time.Second
	maxJoins = 4
	// secretRetry, refusalRetry and replyRetry are pauses between attempts: for a missing Secret,
	// after a refusal, and while the inviter does not answer.
	secretRetry  = 5 * time.Second
	refusalRetry = 20 * time.Second
	replyRetry   = 2 * time.Minute
	// maxRefusals end a join.
	maxRefusals = 3
)

// joining is a join in progress.
type joining struct {
	running bool
	// after is when to retry, refusals counts the refused attempts.
	after    time.Time
	refusals int
	// status is the result of the last attempt; nil before the first.
	status *v1alpha1.TicketStatus
	// inviter issued the ticket; zero until its text was read.
	inviter peer.PublicKey
}

// joined is the result of an attempt.
type joined struct {
	object *v1alpha1.Ticket
	ticket ticket.Ticket
	answer api.JoinResponse
	err    error
}

// join advances a join, and returns its status.
func (c *Controller) join(ctx context.Context, o *v1alpha1.Ticket) (v1alpha1.TicketStatus, error) {
	if terminal(o.Status.Phase) {
		return o.Status, c.tidy(ctx, o)
	}
	j := &c.of(o).join
	now := time.Now()
	s := statusFor(o)
	if j.status != nil {
		s = *j.status
	}
	if terminal(s.Phase) {
		return s, c.tidy(ctx, o)
	}
	if s.Phase == "" {
		s.Phase = v1alpha1.TicketPending
		s = ready(o, s, metav1.ConditionFalse, reasonWaits, "the ticket is about to be redeemed")
	}
	if j.running {
		return s, nil
	}
	if name, is := c.connectedTo(ctx, j.inviter); is { // because the inviter dialled, or before a restart
		return c.hasJoined(o, s, j, name), nil
	}
	if now.Before(j.after) {
		return s, nil
	}
	text, err := c.secrets.text(ctx, o.Spec.Join.SecretRef)
	if err != nil {
		ref := o.Spec.Join.SecretRef
		j.after = now.Add(secretRetry)
		why := coded(o, catalogue.SecretUnusable, ref.Key, ref.Name, err)
		s.Message = why
		s = ready(o, s, metav1.ConditionFalse, reasonSecret, why)
		j.status = &s
		return s, nil
	}
	t, err := ticket.Decode(strings.TrimSpace(text))
	if err != nil {
		s = c.refused(o, s, err)
		j.status = &s
		return s, nil
	}
	s.ExpiresAt, j.inviter = at(t.Expires), t.Inviter
	if name, is := c.connectedTo(ctx, j.inviter); is {
		return c.hasJoined(o, s, j, name), nil
	}
	if err := t.Check(now); err != nil {
		s = c.refused(o, s, err)
		j.status = &s
		return s, nil
	}
	if c.running < maxJoins {
		c.start(ctx, o, j, t, text)
	}
	return s, nil
}

// hasJoined returns the status once the inviter is a connected peer.
func (c *Controller) hasJoined(o *v1alpha1.Ticket, s v1alpha1.TicketStatus, j *joining, name string) v1alpha1.TicketStatus {
	s.Peer = name
	s = c.ended(o, s, v1alpha1.TicketJoined, "joined peer "+name)
	j.status = &s
	return s
}

// connectedTo reports whether the inviter is a peer that joined and is connected.
func (c *Controller) connectedTo(ctx context.Context, inviter peer.PublicKey) (name string, is bool) {
	if inviter.IsZero() {
		return "", false
	}
	for _, p := range c.gateway.Joined() {
		if p.PublicKey == inviter {
			name = p.Name
		}
	}
	if name == "" {
		return "", false
	}
	status, err := c.gateway.Status(ctx)
	if err != nil {
		return "", false
	}
	for _, p := range status.Peers {
		if p.Name == name && p.State == api.StateConnected {
			return name, true
		}
	}
	return "", false
}

// start makes one attempt in the background, because it may wait for the inviter.
func (c *Controller) start(ctx context.Context, o *v1alpha1.Ticket, j *joining, t ticket.Ticket, text string) {
	j.running = true
	c.running++
	request := api.JoinRequest{Ticket: strings.TrimSpace(text), Name: o.Spec.Join.Name, Wait: api.Duration(joinWait), Allow: o.Spec.Join.Allow}
	c.Go(func() {
		answer, err := c.gateway.Join(ctx, request)
		c.done <- joined{o, t, answer, err}
		c.Signal()
	})
}

// finish handles the result of an attempt.
func (c *Controller) finish(ctx context.Context, r joined) {
	c.running--
	x, there := c.progress[r.object.UID]
	if !there { // it was deleted in the meantime
		return
	}
	j := &x.join
	j.running = false
	o, s := r.object, statusFor(r.object)
	s.ExpiresAt = at(r.ticket.Expires)
	if r.err != nil {
		s = c.notJoined(o, s, j, r.err)
		j.status = &s
		return
	}
	s.Peer = r.answer.Peer
	switch r.answer.Outcome {
	case api.JoinReply:
		if err := c.secrets.put(ctx, o, map[string][]byte{v1alpha1.SecretReply: []byte(r.answer.Reply)}); err != nil {
			c.Log.Warn("failed to store the reply to a ticket; will retry", "object", o.Name, "error", err)
			j.after = time.Now().Add(refusalRetry)
			return
		}
		name := secretPrefix + o.Name
		s.Phase, s.SecretRef = v1alpha1.TicketReply, &v1alpha1.SecretKey{Name: name, Key: v1alpha1.SecretReply}
		s.Message = fmt.Sprintf("the inviter does not answer; have it call: run `postern accept -` there with the output of kubectl get secret %s -n %s -o jsonpath='{.data.%s}' | base64 -d",
			name, o.Namespace, v1alpha1.SecretReply)
		if f := r.answer.Fingerprint; f != "" {
			s.Message += "; it then has to confirm our key, whose fingerprint is " + f
		}
		s = ready(o, s, metav1.ConditionFalse, v1alpha1.TicketReply, r.answer.Reason)
		j.after = time.Now().Add(replyRetry)
	case api.JoinPending:
		s = c.ended(o, s, v1alpha1.TicketJoined, fmt.Sprintf("joined peer %s, which has yet to confirm our key; its fingerprint is %s", s.Peer, r.answer.Fingerprint))
	default:
		s = c.ended(o, s, v1alpha1.TicketJoined, "joined peer "+s.Peer)
	}
	j.status = &s
}

// notJoined returns the status after a failure. A refusal is final if the operator has to change
// something, and after maxRefusals; other errors are retried without limit.
func (c *Controller) notJoined(o *v1alpha1.Ticket, s v1alpha1.TicketStatus, j *joining, err error) v1alpha1.TicketStatus {
	if problem, ok := errors.AsType[*admin.Error](err); ok {
		j.refusals++
		if problem.Usage || j.refusals >= maxRefusals {
			return c.refused(o, s, err)
		}
	}
	j.after = time.Now().Add(refusalRetry)
	if s.Phase == "" {
		s.Phase = v1alpha1.TicketPending
	}
	s.Message = err.Error()
	return ready(o, s, metav1.ConditionFalse, reasonWaits, err.Error()+"; it is tried again")
}
