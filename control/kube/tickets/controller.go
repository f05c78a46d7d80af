package tickets

import (
	"context"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/kube/controller"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/ticket"
)

const (
	// gather is how long to wait for further changes after a change.
	gather = 250 * time.Millisecond
	// lookAgain is the interval at which the book is checked without an event while a Ticket is
	// in progress, for deadlines and retries. This is cheap, because the book is in memory.
	// calmAgain is the interval at other times.
	lookAgain = 3 * time.Second
	calmAgain = 30 * time.Second
	// source identifies these problems of the gateway.
	source = "tickets"
)

// Options configure a Controller. Cluster, Gateway and Name are required.
type Options struct {
	Cluster controller.Cluster
	Gateway Gateway
	// Name is the gateway's, as in events.
	Name string
	// Logger may be nil.
	Logger *slog.Logger
}

// base is the common part of all controllers.
type base = controller.Controller[*v1alpha1.Ticket]

// Controller processes Ticket objects.
type Controller struct {
	*base
	gateway Gateway
	secrets *secrets
	// done contains the results of joins until the next turn.
	done chan joined

	// Owned by the goroutine of Run.
	running  int // joins
	progress map[types.UID]*progress
	revoked  map[ticket.ID]bool
	alarms   alarms
}

// progress is an object's progress in this run.
type progress struct {
	join joining
	// written is the status that was last written; nil before the first time.
	written *v1alpha1.TicketStatus
	// tidied: nothing is left to be deleted.
	tidied bool
}

// of returns an object's progress.
func (c *Controller) of(o *v1alpha1.Ticket) *progress {
	x := c.progress[o.UID]
	if x == nil {
		x = &progress{}
		c.progress[o.UID] = x
	}
	return x
}

// New returns a controller. It sends no request yet.
func New(o Options) (*Controller, error) {
	b, err := controller.New(controller.Options[*v1alpha1.Ticket]{
		Cluster: o.Cluster, Gateway: o.Gateway, Name: o.Name, Object: &v1alpha1.Ticket{}, List: &v1alpha1.TicketList{},
		Kind: v1alpha1.TicketKind, Resource: v1alpha1.TicketResource, Source: source, Gather: gather, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Controller{
		base: b, gateway: o.Gateway, secrets: &secrets{client: b.Core, namespace: o.Cluster.Namespace()},
		done: make(chan joined, maxJoins), progress: map[types.UID]*progress{}, revoked: map[ticket.ID]bool{},
	}, nil
}

// Run processes Tickets until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.base.Run(ctx, c.turn) }

// turn performs all steps that are due, and returns when to call it again.
func (c *Controller) turn(ctx context.Context) time.Duration {
	for len(c.done) > 0 {
		c.finish(ctx, <-c.done)
	}
	list, synced := c.Mirror.Objects()
	if !synced || time.Now().Before(c.Pause.Until) {
		return lookAgain
	}
	next := calmAgain
	uids := map[types.UID]bool{}
	var failed error
	for _, o := range list {
		uids[o.UID] = true
		if s := c.of(o).written; s != nil && o.DeletionTimestamp == nil {
			o = o.DeepCopy()
			o.Status = *s // the watch may not have delivered it yet
		}
		if !terminal(o.Status.Phase) {
			next = lookAgain
		}
		if failed == nil {
			failed = c.step(ctx, o)
		}
	}
	c.tellFailed(list)
	c.revokeOrphans(list)
	c.tellAlarms(list)
	maps.DeleteFunc(c.progress, func(uid types.UID, _ *progress) bool { return !uids[uid] })
	if failed != nil && ctx.Err() == nil {
		return c.Pause.Hold()
	}
	c.Pause.End()
	return next
}

// step advances one Ticket and writes the result.
func (c *Controller) step(ctx context.Context, o *v1alpha1.Ticket) error {
	var s v1alpha1.TicketStatus
	var err error
	switch {
	case o.DeletionTimestamp != nil:
		return nil
	case o.Spec.Invite != nil:
		s, err = c.invite(ctx, o)
	case o.Spec.Join != nil:
		s, err = c.join(ctx, o)
	default:
		return nil
	}
	c.Problems.Note("secrets", resource, c.Objects.Namespace(), err, time.Now())
	if err != nil {
		return err
	}
	if same(o.Status, s) {
		return nil
	}
	err = c.Objects.ApplyStatus(ctx, o, s)
	if err != nil && objects.Vanished(err) {
		return nil
	}
	c.NoteWrite(err)
	if err != nil {
		return err
	}
	c.of(o).written = &s
	c.note(o, s)
	return nil
}

// note writes the event for a new phase.
func (c *Controller) note(o *v1alpha1.Ticket, s v1alpha1.TicketStatus) {
	if o.Status.Phase == s.Phase {
		return
	}
	e := events.Event{Type: events.Normal, Reason: s.Phase, Message: s.Message}
	switch s.Phase {
	case v1alpha1.TicketPending, "":
		return
	case v1alpha1.TicketFailed:
		e.Type, e.Reason = events.Warning, reasonTicketRefused
	case v1alpha1.TicketReply:
		e.Type = events.Warning
	}
	c.Events.Record(c.Objects.Reference(o), e)
}

// tellAlarms writes events about tickets that a second key tried.
func (c *Controller) tellAlarms(list []*v1alpha1.Ticket) {
	c.alarms.write(c.gateway.Alarms(), func(ticket string) (corev1.ObjectReference, bool) {
		for _, o := range list {
			s := o.Status
			if written := c.of(o).written; written != nil {
				s = *written
			}
			if s.ID == ticket {
				return c.Objects.Reference(o), true
			}
		}
		return corev1.ObjectReference{}, false
	}, c.Events.Record)
}
