// Package controller is the common part of the controllers of a cluster's postern objects: a
// mirror of the objects, a loop that takes a turn when something has changed, and the ways in
// which a turn reports its results: status, Events, the gateway's own checks and the log.
package controller

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/tunnel/wake"
)

// firstPause and maxPause are the pauses between tries while the API server refuses something.
const (
	firstPause = time.Second
	maxPause   = 15 * time.Second
)

// Cluster creates clients for the gateway's own cluster.
type Cluster interface {
	Namespace() string
	Group(version schema.GroupVersion, objects ...runtime.Object) (rest.Interface, error)
}

// Gateway is what every controller needs of its gateway.
type Gateway interface {
	// OnChange adds a function that is called when the gateway's status may have changed.
	OnChange(f func())
	// SetProblems replaces a source's problems with the gateway itself.
	SetProblems(source string, list []check.OwnProblem)
}

// Options configure a controller. All but Logger are required, Gateway only for Run.
type Options[T mirror.Object] struct {
	Cluster Cluster
	Gateway Gateway
	// Name is the gateway's, for events.
	Name string
	// Object and List are empty ones of the kind.
	Object, List   runtime.Object
	Kind, Resource string
	// Source is the source of the problems with requests.
	Source string
	// Gather is how long to wait for further changes after one: many objects applied at once
	// become one change.
	Gather time.Duration
	Logger *slog.Logger
}

// Controller is the common part of a controller of one kind of objects. Its methods, except
// Signal and Context, are for the goroutine of Run.
type Controller[T mirror.Object] struct {
	Log     *slog.Logger
	Core    rest.Interface // supports Secrets and Events
	Mirror  *mirror.Mirror[T]
	Objects *objects.Writer
	Events  *events.Recorder
	// Problems are the problems with requests; they are reported after each turn.
	Problems objects.Problems
	Pause    Pause

	o        Options[T]
	wake     wake.Signal
	running  sync.WaitGroup
	reported map[string][]check.OwnProblem // by source
}

// New returns a controller. It sends no request yet.
func New[T mirror.Object](o Options[T]) (*Controller[T], error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	client, err := o.Cluster.Group(v1alpha1.GroupVersion(), o.Object, o.List)
	if err != nil {
		return nil, err
	}
	core, err := o.Cluster.Group(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.Event{})
	if err != nil {
		return nil, err
	}
	namespace := o.Cluster.Namespace()
	c := &Controller[T]{
		o: o, Log: o.Logger, Core: core, wake: wake.New(), reported: map[string][]check.OwnProblem{},
		Objects: objects.NewWriter(client, namespace, o.Resource, o.Kind),
		Events:  events.New(events.Options{Client: core, Namespace: namespace, Instance: o.Name, Logger: o.Logger}),
	}
	c.Mirror = mirror.New(mirror.Options[T]{
		Client: client, Resource: o.Resource, Namespace: namespace, List: o.List, Changed: c.Signal, Logger: o.Logger,
	})
	return c, nil
}

// Run takes turns until ctx ends: when something has changed, and at the latest when the last
// turn said. It returns once nothing of the controller is running.
func (c *Controller[T]) Run(ctx context.Context, turn func(context.Context) time.Duration) {
	ctx, cancel := context.WithCancel(c.Context(ctx))
	defer c.running.Wait()
	defer cancel()
	c.Go(func() { c.Mirror.Run(ctx) })
	c.Go(func() { c.Events.Run(ctx) })
	c.o.Gateway.OnChange(c.Signal)
	defer c.withdraw()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-c.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(c.o.Gather):
			}
			select { // the turn handles what arrived meanwhile
			case <-c.wake:
			default:
			}
		}
		c.Problems.Note("watch", c.o.Resource, c.Objects.Namespace(), c.Mirror.Err(), time.Now())
		next.Reset(turn(ctx))
		c.report()
	}
}

// Go runs f concurrently with the loop; Run does not return before f.
func (c *Controller[T]) Go(f func()) { c.running.Go(f) }

// Signal makes Run take a turn.
func (c *Controller[T]) Signal() { c.wake.Set() }

// Context makes client-go use our logger instead of the process's stderr.
func (c *Controller[T]) Context(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(c.Log.Handler()))
}

// NoteWrite records the result of a status write.
func (c *Controller[T]) NoteWrite(err error) {
	c.Problems.Note("write", c.o.Resource+"/status", c.Objects.Namespace(), err, time.Now())
}

// report reports problems with the cluster to the gateway's own checks and to the log, when they
// change.
func (c *Controller[T]) report() {
	c.SetProblems(c.o.Source+"-reverts", c.Objects.Reverts.Problems(time.Now()))
	all, fresh, changed := c.Problems.Changed()
	if !changed {
		return
	}
	for _, p := range fresh {
		cause, fix := catalogue.Render(p.Code, p.Params)
		c.Log.Warn("problem with the Kubernetes API", "code", string(p.Code), "problem", cause, "fix", fix.String())
	}
	c.reported[c.o.Source] = all
	c.o.Gateway.SetProblems(c.o.Source, all)
}

// SetProblems reports problems with objects to the gateway's own checks, if they differ from the
// source's last ones. These checks are not about a peer.
func (c *Controller[T]) SetProblems(source string, list []check.OwnProblem) {
	same := slices.EqualFunc(list, c.reported[source], func(a, b check.OwnProblem) bool {
		return a.Code == b.Code && a.Params.Peer == b.Params.Peer && a.Params.Field == b.Params.Field && a.Params.Detail == b.Params.Detail &&
			a.Params.Manager == b.Params.Manager && a.Params.Reverts == b.Params.Reverts && slices.Equal(a.Params.Names, b.Params.Names)
	})
	if !same {
		c.reported[source] = list
		c.o.Gateway.SetProblems(source, list)
	}
}

// withdraw clears the problems reported to the gateway.
func (c *Controller[T]) withdraw() {
	for source := range c.reported {
		c.o.Gateway.SetProblems(source, nil)
	}
}

// Pause stops a controller's requests while the API server refuses them. The zero value is no
// pause.
type Pause struct {
	// Until is when it ends.
	Until  time.Time
	length time.Duration
}

// Hold begins a pause, longer each time, and returns its length.
func (p *Pause) Hold() time.Duration {
	p.length = min(max(2*p.length, firstPause), maxPause)
	p.Until = time.Now().Add(p.length)
	return p.length
}

// End ends the pause: a request has succeeded.
func (p *Pause) End() { *p = Pause{} }
