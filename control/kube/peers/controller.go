package peers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/controller"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/kube/lease"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// gather is how long to wait for further changes: many objects applied at once become one
	// change.
	gather = 400 * time.Millisecond
	// lookAgain is how often to look at the gateway without a signal: a round trip time changes
	// without an event.
	lookAgain = 10 * time.Second
	// leaveTimeout bounds the writes at the end: another replica may be waiting.
	leaveTimeout = 2 * time.Second
)

// source is the problem source of this package.
const source = "peers"

// Options configure a Controller. Cluster and Name are required, Gateway for Run.
type Options struct {
	Cluster controller.Cluster
	Gateway Gateway
	// Name is the gateway's, for events.
	Name string
	// Logger may be nil.
	Logger *slog.Logger
}

// base is what all controllers have in common.
type base = controller.Controller[*v1alpha1.Peer]

// Controller keeps a gateway's peers and the cluster's Peer objects in sync. Methods other than
// Initial and Run belong to Run's goroutine.
type Controller struct {
	*base
	gateway  Gateway
	resolver *resolver

	// Owned by Run's goroutine.
	own         peer.PublicKey
	applied     applied
	candidates  []*candidate
	objectsSeen map[types.UID]*seen
	writes      *pace
	complaints  map[string]metav1.StatusReason
}

// seen is what is stored about an object.
type seen struct {
	// hadPeer: its peer was in the gateway's state.
	hadPeer bool
	// generation is the one whose Secrets were read.
	generation int64
	// shown is the last written status; nil before the first write.
	shown *v1alpha1.PeerStatus
}

// seen returns what is stored about an object.
func (c *Controller) seen(o *v1alpha1.Peer) *seen {
	x := c.objectsSeen[o.UID]
	if x == nil {
		x = &seen{}
		c.objectsSeen[o.UID] = x
	}
	return x
}

// New returns a controller. It sends no request yet.
func New(o Options) (*Controller, error) {
	b, err := controller.New(controller.Options[*v1alpha1.Peer]{
		Cluster: o.Cluster, Gateway: o.Gateway, Name: o.Name, Object: &v1alpha1.Peer{}, List: &v1alpha1.PeerList{},
		Kind: v1alpha1.PeerKind, Resource: v1alpha1.PeerResource, Source: source, Gather: gather, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Controller{
		base: b, gateway: o.Gateway, resolver: &resolver{secrets: newSecrets(b.Core, o.Cluster.Namespace())},
		objectsSeen: map[types.UID]*seen{}, writes: newPace(), complaints: map[string]metav1.StatusReason{},
	}, nil
}

// Initial reads the objects once, for the first roster of a gateway that is about to start, so that
// its peers are dialled at once. The gateway's services are unknown yet, so grants of named ones
// follow when Run runs. Objects of joined peers hold their options.
func (c *Controller) Initial(ctx context.Context) ([]config.Peer, error) {
	list, err := c.Mirror.List(c.Context(ctx))
	if err != nil {
		return nil, err
	}
	var found []*candidate
	for _, o := range list.(*v1alpha1.PeerList).Items {
		key, err := peer.ParsePublicKey(o.Spec.PublicKey)
		if err != nil {
			continue
		}
		if origin(&o) == "" && o.DeletionTimestamp != nil {
			continue
		}
		x := c.resolver.resolve(ctx, &o) // a deleted one of a joined peer has its options until Run removes the peer
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

// Run syncs until ctx ends. Then the objects say that no gateway watches the peers, unless another
// replica does ([lease.ErrLost]).
func (c *Controller) Run(ctx context.Context) {
	c.base.Run(ctx, c.turn)
	if !errors.Is(context.Cause(ctx), lease.ErrLost) {
		c.leave(context.WithoutCancel(ctx))
	}
}

// leave writes to the objects that their state is unknown: the gateway may never come back.
func (c *Controller) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(c.Context(ctx), leaveTimeout)
	defer cancel()
	now := time.Now()
	for _, x := range c.candidates {
		if x.leaving || x.refused != nil {
			continue
		}
		is := c.writes.known(x.object.UID, x.object.Status, now)
		if err := c.Objects.ApplyStatus(ctx, x.object, stopped(is, now)); err != nil {
			c.Log.Debug("failed to write to a Peer's status that the gateway is stopping", "peer", x.object.Name, "error", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// turn does what is due, and returns when to call it again at the latest.
func (c *Controller) turn(ctx context.Context) time.Duration {
	list, synced := c.Mirror.Objects()
	next := lookAgain
	if synced {
		if wait := c.resolver.secrets.refresh(ctx); wait > 0 {
			next = min(next, wait)
		}
		status, err := c.gateway.Status(ctx)
		if err == nil {
			err = c.sync(ctx, list, status)
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("failed to read the peers' status from the gateway", "error", err)
		}
		if err == nil && c.follow(ctx, c.candidates) {
			c.Signal()
		}
		if err == nil {
			next = min(next, c.show(ctx, status))
		}
	}
	c.tellRefused()
	return next
}

// sync makes the objects the gateway's peers.
func (c *Controller) sync(ctx context.Context, list []*v1alpha1.Peer, status api.Status) error {
	var err error
	if c.own, err = peer.ParsePublicKey(status.Gateway.PublicKey); err != nil {
		return err
	}
	if c.resolver.named, err = namedServices(ctx, c.gateway); err != nil {
		return err
	}
	c.resolver.clusters = c.gateway.Services() != nil
	joined := map[string]*state.Peer{}
	for _, p := range c.gateway.Joined() {
		joined[p.Name] = &p
	}
	c.resolver.secrets.begin()
	c.candidates = c.candidates[:0]
	for _, o := range list {
		// Somebody's finalizer may keep a deleted object for long: whoever deletes a Peer means to
		// revoke its rights.
		if o.DeletionTimestamp != nil {
			continue
		}
		if x := c.seen(o); x.generation != o.Generation { // whoever changes an object has fixed its Secrets
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

// show updates the objects' status, and returns when to call it again.
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
		if now.Before(c.Pause.Until) {
			next = min(next, c.Pause.Until.Sub(now))
			continue
		}
		if wait := c.Objects.Wait(o, want, now); wait > 0 {
			next = min(next, wait)
			continue
		}
		c.writes.wrote(o.UID, want, now)
		if err := c.Objects.ApplyStatus(ctx, o, want); err != nil && !objects.Vanished(err) {
			c.writes.failed(o.UID, before)
			next = min(next, c.Pause.Hold())
			c.NoteWrite(err)
		} else {
			c.Pause.End()
			c.NoteWrite(nil)
		}
	}
	c.writes.keep(uids)
	maps.DeleteFunc(c.objectsSeen, func(uid types.UID, _ *seen) bool { return !uids[uid] })
	return max(next, gather)
}

// note writes the events for a new status.
func (c *Controller) note(x *candidate, want v1alpha1.PeerStatus) {
	was, seen := x.object.Status, c.seen(x.object)
	if seen.shown != nil {
		was = *seen.shown
	}
	told := held(was, want)
	seen.shown = &told
	list := notes(was, told)
	if x.noted != nil && x.refused == nil && want.Code == string(x.noted.code) && was.Code != want.Code {
		list = append(list, events.Event{Type: events.Warning, Reason: reasonOf(x.noted.code), Message: x.noted.text()})
	}
	for _, e := range list {
		c.Events.Record(c.Objects.Reference(x.object), e)
	}
}

// complain logs that a joined peer and its object could not be reconciled, once for each reason.
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
	c.Log.Warn("failed to reconcile a joined peer with its object; will retry", "peer", name, "error", err)
}
