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
	// gather is how long is waited for more when something has changed.
	gather = 250 * time.Millisecond
	// lookAgain is how often the book is looked at without being told while a Ticket is under
	// way, for deadlines and further tries: that is in memory, and costs nothing. calmAgain is
	// when none is.
	lookAgain = 3 * time.Second
	calmAgain = 30 * time.Second
	// source is whose problems of the gateway these are.
	source = "tickets"
)

// Options of a controller. Cluster, Gateway and Name are required.
type Options struct {
	Cluster controller.Cluster
	Gateway Gateway
	// Name is the gateway's, as events have it.
	Name string
	// Logger may be nil.
	Logger *slog.Logger
}

// base is what all controllers have in common.
type base = controller.Controller[*v1alpha1.Ticket]

// Controller does what Tickets ask for.
type Controller struct {
	*base
	gateway Gateway
	secrets *secrets
	// done has the outcomes of joins until the next turn.
	done chan joined

	// Of the goroutine of Run.
	running  int // joins
	progress map[types.UID]*progress
	revoked  map[ticket.ID]bool
	alarms   alarms
}

// progress is how far an object is, in this run.
type progress struct {
	join joining
	// written is the status that was written last; nil before the first time.
	written *v1alpha1.TicketStatus
	// tidied: nothing is left that would have to be deleted.
	tidied bool
}

// of is how far an object is.
func (c *Controller) of(o *v1alpha1.Ticket) *progress {
	x := c.progress[o.UID]
	if x == nil {
		x = &progress{}
		c.progress[o.UID] = x
	}
	return x
}

// New makes a controller. Nothing is asked of the cluster yet.
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

// Run does it until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.base.Run(ctx, c.turn) }

// turn does what there is to do, and says when to come again.
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
			o.Status = *s // the watch may not have brought it back yet
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

// step takes one Ticket further and writes what came of it.
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

// note has the event written that a new phase calls for.
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

// tellAlarms has events written about tickets that a second key tried.
func (c *Controller) tellAlarms(list []*v1alpha1.Ticket) {
	c.alarms.tell(c.gateway.Alarms(), func(ticket string) (corev1.ObjectReference, bool) {
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
