package access

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// calm is how long to wait for further changes after one.
	calm = 300 * time.Millisecond
	// surveyEvery is how often to look whether someone changed or deleted objects. It costs one
	// list of metadata per kind; three watches would cost more with few peers.
	surveyEvery = time.Minute
	// startGrace is how long after the start nothing is deleted: a gateway that takes over from
	// another, or cannot read its Peers at once, needs a moment to know them all.
	startGrace = 30 * time.Second
	// firstRetry doubles with each failure up to maxRetry.
	firstRetry = time.Second
	maxRetry   = 15 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
)

// Gateway is what a Keeper needs of the gateway; *gateway.Gateway implements it.
type Gateway interface {
	Status(context.Context) (api.Status, error)
	Kubeconfig(ctx context.Context, peer string) (api.Kubeconfig, error)
	Credential(ctx context.Context, peer string) (api.Credential, error)
	// ServicePort returns the port of a peer's service inside the tunnel.
	ServicePort(peer, service string) (uint16, bool)
}

// Options configure a [Keeper]. Cluster, Gateway, Release and Selector are required.
type Options struct {
	Cluster *kube.Cluster
	Gateway Gateway
	// Namespace is the gateway's; empty means the cluster's.
	Namespace string
	// Release identifies our objects: the label app.kubernetes.io/instance.
	Release string
	// Selector are the labels of the active pod, Pods those of all the gateway's pods.
	Selector, Pods map[string]string
	// From are the additional namespaces whose pods may use the services of peers.
	From []string
	// Port is the gateway's UDP port.
	Port uint16
	// AuthPort is the TCP port of auth outside the tunnel; 0 for none.
	AuthPort uint16
	// Owner is the owner of the gateway's pod, a StatefulSet. Garbage collection deletes the
	// objects with it when the release is uninstalled and no gateway is left to do so. With the
	// zero value they have no owner.
	Owner metav1.OwnerReference
	// Account is the gateway's ServiceAccount (namespace:name), for messages; may be empty.
	Account string
	// OnProblems is called by Run when the problems have changed; may be nil.
	OnProblems func([]check.OwnProblem)
	// Logger may be nil.
	Logger *slog.Logger
}

// Keeper maintains the objects of the peers while [Keeper.Run] runs.
type Keeper struct {
	o     Options
	log   *slog.Logger
	kinds []*kind
	wake  wake.Signal
	every time.Duration // surveyEvery
	grace time.Duration // startGrace

	// Owned by Run.
	have     map[id]held
	refused  map[id]check.OwnProblem // see waits
	problems []check.OwnProblem
	reverts  objects.Reverts
	surveyed time.Time
	begun    time.Time
}

// NewKeeper returns a keeper. It sends no request yet.
func NewKeeper(o Options) (*Keeper, error) {
	if o.Cluster == nil || o.Gateway == nil || o.Release == "" || len(o.Selector) == 0 {
		return nil, errors.New("access: Cluster, Gateway, Release and Selector are required")
	}
	if o.Namespace == "" {
		o.Namespace = o.Cluster.Namespace()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	c, err := newClients(o.Cluster)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		o: o, log: o.Logger, wake: wake.New(), every: surveyEvery, grace: startGrace, have: map[id]held{},
		kinds: []*kind{
			{name: kindService, resource: "services", version: corev1.SchemeGroupVersion.String(), client: c.core},
			{name: kindSecret, resource: "secrets", version: corev1.SchemeGroupVersion.String(), client: c.core},
			{name: kindPolicy, resource: "networkpolicies", group: networkingv1.GroupName, version: networkingv1.SchemeGroupVersion.String(), client: c.networking, optional: true},
		},
	}, nil
}

// Changed reports that peers, listeners or identities may have changed. It never blocks.
func (k *Keeper) Changed() { k.wake.Set() }

// Run maintains the objects until ctx ends. It leaves them for the next gateway.
func (k *Keeper) Run(ctx context.Context) {
	k.begun = time.Now()
	delay := firstRetry
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			next.Reset(calm)
			continue
		case <-next.C:
		}
		failed := k.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := time.Until(k.surveyed.Add(k.every))
		if k.young() {
			wait = min(wait, time.Until(k.begun.Add(k.grace)))
		}
		if failed {
			wait, delay = delay, min(2*delay, maxRetry)
		} else {
			delay = firstRetry
		}
		next.Reset(max(wait, calm))
	}
}

// young reports whether nothing may be deleted yet.
func (k *Keeper) young() bool { return time.Since(k.begun) < k.grace }

// pass brings the objects up to date. It reports whether something failed that is worth a retry
// soon. If that was no rejection, nothing is logged yet, and the problems stay.
func (k *Keeper) pass(ctx context.Context) (failed bool) {
	if time.Since(k.surveyed) >= k.every {
		if err := k.survey(ctx); err != nil {
			k.log.Debug("failed to read the Services of peers", "error", err)
			return true
		}
		k.surveyed = time.Now()
	}
	want, err := k.wanted(ctx)
	if err == nil {
		err = k.settle(ctx, want)
	}
	if err != nil {
		k.log.Debug("failed to reconcile the Services of peers", "error", err)
		return true
	}
	if found := k.found(); !reflect.DeepEqual(found, k.problems) {
		k.problems = found
		if k.o.OnProblems != nil {
			k.o.OnProblems(found)
		}
	}
	for i := range k.refused {
		failed = failed || !k.waits(i)
	}
	return failed
}

// found returns the problems: kinds that may not be used, and rejected objects.
func (k *Keeper) found() []check.OwnProblem {
	var out []check.OwnProblem
	for _, kind := range k.kinds {
		if kind.denied {
			out = append(out, k.forbidden(kind))
		}
	}
	for _, i := range sorted(k.refused) {
		out = append(out, k.refused[i])
	}
	return append(out, k.reverts.Problems(time.Now())...)
}
