package peers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// gather is how long is waited for more when something has changed: many objects applied
	// at once become one change.
	gather = 400 * time.Millisecond
	// lookAgain is how often the gateway is looked at without being told: a round trip time
	// changes without anything happening.
	lookAgain = 10 * time.Second
	// firstPause and maxPause are between writes while the API server refuses them.
	firstPause = time.Second
	maxPause   = 15 * time.Second
)

// source is whose problems of the gateway these are.
const source = "peers"

// Options of a controller. Cluster and Name are required, Gateway for Run.
type Options struct {
	Cluster Cluster
	Gateway Gateway
	// Name is the gateway's, as events have it.
	Name string
	// Logger may be nil.
	Logger *slog.Logger
}

// Controller keeps a gateway's peers and the cluster's Peer objects the same. Its methods
// other than Initial and Run are for the one goroutine of Run.
type Controller struct {
	o        Options
	log      *slog.Logger
	wake     chan struct{}
	mirror   *mirror.Mirror[*v1alpha1.Peer]
	objects  *objects.Writer
	resolver *resolver
	events   *events.Recorder

	// Of the goroutine of Run.
	own         peer.PublicKey
	applied     applied
	candidates  []*candidate
	objectsSeen map[types.UID]*seen
	writes      writes
	troubles    objects.Troubles
	complaints  map[string]metav1.StatusReason
	told        []check.OwnProblem // of Peers that are not in force
}

// seen is what is remembered of an object.
type seen struct {
	// hadPeer: its peer was in the gateway's state.
	hadPeer bool
	// generation is that whose Secrets were read.
	generation int64
	// shown is what its status was to say last; nil before the first time.
	shown *v1alpha1.PeerStatus
}

// seen is what is remembered of an object.
func (c *Controller) seen(o *v1alpha1.Peer) *seen {
	x := c.objectsSeen[o.UID]
	if x == nil {
		x = &seen{}
		c.objectsSeen[o.UID] = x
	}
	return x
}

// writes paces what is written.
type writes struct {
	*pace
	// after is when to write again after a write has failed, and pause how long was waited.
	after time.Time
	pause time.Duration
}

// succeeded ends the pause.
func (w *writes) succeeded() { w.pause, w.after = 0, time.Time{} }

// hold begins a pause, longer each time.
func (w *writes) hold() time.Duration {
	w.pause = min(max(2*w.pause, firstPause), maxPause)
	w.after = time.Now().Add(w.pause)
	return w.pause
}

// New makes a controller. Nothing is asked of the cluster yet.
func New(o Options) (*Controller, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := o.Cluster.Group(v1alpha1.GroupVersion(), &v1alpha1.Peer{}, &v1alpha1.PeerList{})
	if err != nil {
		return nil, err
	}
	core, err := o.Cluster.Group(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.Event{})
	if err != nil {
		return nil, err
	}
	namespace := o.Cluster.Namespace()
	c := &Controller{
		o: o, log: o.Logger, wake: make(chan struct{}, 1), objects: objects.NewWriter(client, namespace, v1alpha1.PeerResource, v1alpha1.PeerKind),
		resolver:    &resolver{secrets: newSecrets(core, namespace)},
		events:      events.New(events.Options{Client: core, Namespace: namespace, Instance: o.Name, Logger: o.Logger}),
		objectsSeen: map[types.UID]*seen{}, writes: writes{pace: newPace()},
		complaints: map[string]metav1.StatusReason{},
	}
	c.mirror = mirror.New(mirror.Options[*v1alpha1.Peer]{
		Client: client, Resource: v1alpha1.PeerResource, Namespace: namespace, List: &v1alpha1.PeerList{},
		Changed: c.signal, Logger: o.Logger,
	})
	return c, nil
}

// Initial reads the objects once, for the first roster of a gateway that is about to start:
// with them its peers are dialled at once. The services that the gateway has are not known
// yet, so grants of named ones follow when Run runs. Objects of peers that joined are
// options of theirs.
func (c *Controller) Initial(ctx context.Context) ([]config.Peer, error) {
	list, err := c.mirror.List(c.logged(ctx))
	if err != nil {
		return nil, err
	}
	var found []*candidate
	for _, o := range list.(*v1alpha1.PeerList).Items {
		key, err := peer.ParsePublicKey(o.Spec.PublicKey)
		if err != nil {
			continue
		}
		x := c.resolver.resolve(ctx, &o)
		if origin(&o) != "" {
			fitJoined(x, &state.Peer{PublicKey: key})
		} else {
			fitJoined(x, nil)
		}
		found = append(found, x)
	}
	admit(found, peer.PublicKey{})
	return chosen(found), nil
}

// Run does it until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = c.logged(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { c.mirror.Run(ctx) })
	wg.Go(func() { c.events.Run(ctx) })
	c.o.Gateway.OnChange(c.signal)
	defer c.o.Gateway.SetProblems(source, nil)
	defer c.o.Gateway.SetProblems(sourceRefused, nil)
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		case <-c.wake:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(gather):
			}
			select {
			case <-c.wake:
			default:
			}
		}
		wait.Reset(c.turn(ctx))
	}
}

// signal has Run take a turn.
func (c *Controller) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// turn does what there is to do, and says when to come again at the latest.
func (c *Controller) turn(ctx context.Context) time.Duration {
	namespace := c.objects.Namespace()
	c.troubles.Note("watch", v1alpha1.PeerResource, namespace, c.mirror.Err(), time.Now())
	list, synced := c.mirror.Objects()
	next := lookAgain
	if synced {
		if wait := c.resolver.secrets.refresh(ctx); wait > 0 {
			next = min(next, wait)
		}
		status, err := c.o.Gateway.Status(ctx)
		if err == nil {
			err = c.sync(ctx, list, status)
		}
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the gateway does not say how its peers are", "error", err)
		}
		if err == nil && c.follow(ctx, c.candidates) {
			c.signal()
		}
		if err == nil {
			next = min(next, c.show(ctx, status))
		}
	}
	c.tell()
	c.tellRefused()
	return next
}

// sync makes the objects the gateway's peers.
func (c *Controller) sync(ctx context.Context, list []*v1alpha1.Peer, status api.Status) error {
	var err error
	if c.own, err = peer.ParsePublicKey(status.Gateway.PublicKey); err != nil {
		return err
	}
	if c.resolver.named, err = namedServices(ctx, c.o.Gateway); err != nil {
		return err
	}
	joined := map[string]*state.Peer{}
	for _, p := range c.o.Gateway.Joined() {
		joined[p.Name] = &p
	}
	c.resolver.secrets.begin()
	c.candidates = c.candidates[:0]
	for _, o := range list {
		if x := c.seen(o); x.generation != o.Generation { // whoever changes an object has put its Secrets right
			x.generation = o.Generation
			c.resolver.secrets.forget(o.Spec.SecretRefs()...)
		}
		x := c.resolver.resolve(ctx, o)
		fitJoined(x, joined[o.Name])
		c.candidates = append(c.candidates, x)
	}
	admit(c.candidates, c.own)
	c.apply(ctx, c.candidates)
	return nil
}

// show brings the objects' status up to date, and says when to come again.
func (c *Controller) show(ctx context.Context, status api.Status) time.Duration {
	byName := map[string]*api.PeerStatus{}
	for i := range status.Peers {
		byName[status.Peers[i].Name] = &status.Peers[i]
	}
	now, next := time.Now(), lookAgain
	uids := map[types.UID]bool{}
	for _, x := range c.candidates {
		o := x.object
		uids[o.UID] = true
		if x.leaving {
			continue
		}
		s := byName[o.Name]
		if s != nil && !x.peer.PublicKey.IsZero() && s.PublicKey != x.peer.PublicKey.String() {
			s = nil // another gateway of the name, which is about to go
		}
		before := c.writes.known(o.UID, o.Status, now)
		want := statusOf(x, s, before, now)
		c.note(x, want)
		write, wait := c.writes.due(o.UID, o.Status, want, now)
		if wait > 0 {
			next = min(next, wait)
		}
		if !write {
			continue
		}
		if now.Before(c.writes.after) {
			next = min(next, c.writes.after.Sub(now))
			continue
		}
		c.writes.wrote(o.UID, want, now)
		if err := c.objects.ApplyStatus(ctx, o, want); err != nil && !objects.Vanished(err) {
			c.writes.failed(o.UID, before)
			next = min(next, c.writes.hold())
			c.troubles.Note("write", v1alpha1.PeerResource+"/status", c.objects.Namespace(), err, now)
		} else {
			c.writes.succeeded()
			c.troubles.Note("write", "", "", nil, now)
		}
	}
	c.writes.keep(uids)
	maps.DeleteFunc(c.objectsSeen, func(uid types.UID, _ *seen) bool { return !uids[uid] })
	return max(next, gather)
}

// note has the events written that a new status calls for.
func (c *Controller) note(x *candidate, want v1alpha1.PeerStatus) {
	was, seen := x.object.Status, c.seen(x.object)
	if seen.shown != nil {
		was = *seen.shown
	}
	seen.shown = &want
	list := notes(was, want)
	if x.noted != nil && x.refused == nil && want.Code == string(x.noted.code) && was.Code != want.Code {
		list = append(list, events.Event{Type: events.Warning, Reason: reasonOf(x.noted.code), Message: x.noted.text()})
	}
	for _, e := range list {
		c.events.Record(c.objects.Reference(x.object), e)
	}
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

// complain logs that a peer that joined and its object could not be brought together, once
// for each reason.
func (c *Controller) complain(name string, err error) {
	if err == nil {
		delete(c.complaints, name)
		return
	}
	reason := apierrors.ReasonForError(err)
	if was, told := c.complaints[name]; told && was == reason || errors.Is(err, context.Canceled) {
		return
	}
	c.complaints[name] = reason
	c.log.Warn("a peer that joined and its object cannot be brought together; it is tried again", "peer", name, "error", err)
}

// logged makes client-go log where we do, and not to the process's stderr.
func (c *Controller) logged(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()))
}
