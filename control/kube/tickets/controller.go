package tickets

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/kube/mirror"
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
	// firstPause and maxPause are between tries while the API server refuses something.
	firstPause = time.Second
	maxPause   = 15 * time.Second
	// source is whose problems of the gateway these are.
	source = "tickets"
)

// Options of a controller. Cluster, Gateway and Name are required.
type Options struct {
	Cluster Cluster
	Gateway Gateway
	// Name is the gateway's, as events have it.
	Name string
	// Logger may be nil.
	Logger *slog.Logger
}

// Controller does what Tickets ask for.
type Controller struct {
	o       Options
	log     *slog.Logger
	wake    chan struct{}
	done    chan joined
	mirror  *mirror.Mirror[*v1alpha1.Ticket]
	objects *objects.Writer
	secrets *secrets
	events  *events.Recorder
	wg      sync.WaitGroup

	// Of the goroutine of Run.
	running  int // joins
	progress map[types.UID]*progress
	revoked  map[ticket.ID]bool
	troubles objects.Troubles
	failed   []check.OwnProblem // as the gateway was told
	alarms   alarms
	pause    time.Duration
	after    time.Time // when requests are made again after one has failed
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := o.Cluster.Group(v1alpha1.GroupVersion(), &v1alpha1.Ticket{}, &v1alpha1.TicketList{})
	if err != nil {
		return nil, err
	}
	core, err := o.Cluster.Group(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.Event{})
	if err != nil {
		return nil, err
	}
	namespace := o.Cluster.Namespace()
	c := &Controller{
		o: o, log: o.Logger, wake: make(chan struct{}, 1), done: make(chan joined),
		objects:  objects.NewWriter(client, namespace, v1alpha1.TicketResource, v1alpha1.TicketKind),
		secrets:  &secrets{client: core, namespace: namespace},
		events:   events.New(events.Options{Client: core, Namespace: namespace, Instance: o.Name, Logger: o.Logger}),
		progress: map[types.UID]*progress{}, revoked: map[ticket.ID]bool{},
	}
	c.mirror = mirror.New(mirror.Options[*v1alpha1.Ticket]{
		Client: client, Resource: v1alpha1.TicketResource, Namespace: namespace, List: &v1alpha1.TicketList{},
		Changed: c.signal, Logger: o.Logger,
	})
	return c, nil
}

// Run does it until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()))
	ctx, cancel := context.WithCancel(ctx)
	defer c.wg.Wait()
	defer cancel()
	c.wg.Go(func() { c.mirror.Run(ctx) })
	c.wg.Go(func() { c.events.Run(ctx) })
	c.o.Gateway.OnChange(c.signal)
	defer c.o.Gateway.SetProblems(source, nil)
	defer c.o.Gateway.SetProblems(sourceFailed, nil)
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		case r := <-c.done:
			c.finish(ctx, r)
		case <-c.wake:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(gather):
			}
		}
		wait.Reset(c.turn(ctx))
	}
}

func (c *Controller) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// turn does what there is to do, and says when to come again.
func (c *Controller) turn(ctx context.Context) time.Duration {
	now := time.Now()
	c.troubles.Note("watch", v1alpha1.TicketResource, c.objects.Namespace(), c.mirror.Err(), now)
	defer c.tell()
	list, synced := c.mirror.Objects()
	if !synced || now.Before(c.after) {
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
		c.pause = min(max(2*c.pause, firstPause), maxPause)
		c.after = time.Now().Add(c.pause)
		return c.pause
	}
	c.pause = 0
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
	c.troubles.Note("secrets", resource, c.objects.Namespace(), err, time.Now())
	if err != nil {
		return err
	}
	if same(o.Status, s) {
		return nil
	}
	err = c.objects.ApplyStatus(ctx, o, s)
	if err != nil && objects.Vanished(err) {
		return nil
	}
	c.troubles.Note("write", v1alpha1.TicketResource+"/status", c.objects.Namespace(), err, time.Now())
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
	c.events.Record(c.objects.Reference(o), e)
}

// tellAlarms has events written about tickets that a second key tried.
func (c *Controller) tellAlarms(list []*v1alpha1.Ticket) {
	c.alarms.tell(c.o.Gateway.Alarms(), func(ticket string) (corev1.ObjectReference, bool) {
		for _, o := range list {
			s := o.Status
			if written := c.of(o).written; written != nil {
				s = *written
			}
			if s.ID == ticket {
				return c.objects.Reference(o), true
			}
		}
		return corev1.ObjectReference{}, false
	}, c.events.Record)
}

// tell hands what is wrong with the cluster to the gateway's own checks and to the log, when
// that changes.
func (c *Controller) tell() {
	all, fresh, changed := c.troubles.Changed()
	if !changed {
		return
	}
	for _, p := range fresh {
		cause, fix := check.Render(p.Code, p.Params)
		c.log.Warn("the cluster cannot be asked as it should be", "code", string(p.Code), "problem", cause, "fix", fix)
	}
	c.o.Gateway.SetProblems(source, all)
}
