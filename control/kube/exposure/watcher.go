package exposure

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// calm is how long nothing must change before a change is reported: a `helm upgrade` causes
	// several events within a few milliseconds.
	calm = 200 * time.Millisecond
	// firstWait bounds how long the first exposure waits for what cannot be read.
	firstWait = 10 * time.Second
	// listTimeout bounds a single request.
	listTimeout = 5 * time.Second
	// movedFor is how long a change of addresses is shown.
	movedFor = 15 * time.Minute
)

// Options configure a [Watcher]. Cluster, Service, Port and OnChange are required.
type Options struct {
	Cluster *kube.Cluster
	// Namespace is the gateway's; empty means the cluster's.
	Namespace string
	// Service is the name of the gateway's Service, AuthService that of auth's if it is exposed
	// out-of-band.
	Service, AuthService string
	// Port is the gateway's UDP port in its pod.
	Port uint16
	// Pods selects the active pod by labels, as in a Service's selector.
	Pods map[string]string
	// APIServer is the API server's configured address for others; empty means to ask the
	// cluster.
	APIServer string
	// Account is the gateway's ServiceAccount (namespace:name), for commands in messages; may be
	// empty.
	Account string
	// OnChange is called by Run with the first exposure and after each change, one call at a
	// time.
	OnChange func(Exposure)
	// Logger may be nil.
	Logger *slog.Logger
}

// Watcher determines the exposure of a gateway while [Watcher.Run] runs.
type Watcher struct {
	o    Options
	log  *slog.Logger
	wake wake.Signal

	core           rest.Interface
	services, auth *mirror.Mirror[*corev1.Service] // auth is nil when it is not exposed
	pods           *mirror.Mirror[*corev1.Pod]
	nodes          *mirror.Mirror[*corev1.Node]
	ingresses      *mirror.Mirror[*networkingv1.Ingress]
	locator        *locator

	// Owned by Run.
	last         *derived // nil before the first
	pendingSince time.Time
	wasAstray    bool // by the last answer
	moved        *check.OwnProblem
	movedUntil   time.Time
	running      sync.WaitGroup
	nodesRun     bool
}

// New returns a watcher. It sends no request yet.
func New(o Options) (*Watcher, error) {
	if o.Cluster == nil || o.Service == "" || o.Port == 0 || o.OnChange == nil {
		return nil, fmt.Errorf("exposure: Cluster, Service, Port and OnChange are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Namespace == "" {
		o.Namespace = o.Cluster.Namespace()
	}
	c, err := newClients(o.Cluster)
	if err != nil {
		return nil, err
	}
	w := &Watcher{o: o, log: o.Logger, wake: wake.New(), core: c.core}
	// Denied reports failures; the reflectors have no logger, so that they do not repeat them.
	w.services = mirror.New(c.service(o.Namespace, o.Service, w.wake.Set))
	if o.AuthService != "" && o.AuthService != o.Service {
		w.auth = mirror.New(c.service(o.Namespace, o.AuthService, w.wake.Set))
	}
	w.pods = mirror.New(mirror.Options[*corev1.Pod]{
		Client: c.core, Resource: "pods", Namespace: o.Namespace, Labels: labels.Set(o.Pods).String(),
		List: &corev1.PodList{}, Slim: slimPod, Changed: w.wake.Set,
	})
	w.nodes = mirror.New(mirror.Options[*corev1.Node]{
		Client: c.core, Resource: "nodes", List: &corev1.NodeList{}, Slim: slimNode, Changed: w.wake.Set,
	})
	w.ingresses = mirror.New(mirror.Options[*networkingv1.Ingress]{
		Client: c.networking, Resource: "ingresses", Namespace: o.Namespace,
		List: &networkingv1.IngressList{}, Slim: slimIngress, Changed: w.wake.Set,
	})
	w.locator = &locator{core: c.core, changed: w.wake.Set}
	return w, nil
}

// Run watches until ctx ends, and returns when everything has stopped.
func (w *Watcher) Run(ctx context.Context) {
	defer w.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.start(ctx)
	began := time.Now()
	first := time.NewTimer(firstWait)
	defer first.Stop()
	look := time.NewTimer(firstWait) // when to look next
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			look.Reset(calm)
			continue
		case <-look.C:
		case <-first.C:
		}
		now := time.Now()
		if !w.settled() && now.Sub(began) < firstWait {
			continue // a wake follows, or first
		}
		if again := w.update(ctx, now); !again.IsZero() {
			look.Reset(max(calm, again.Sub(now)))
		}
	}
}

// start starts watching everything except the nodes.
func (w *Watcher) start(ctx context.Context) {
	w.running.Go(func() { w.services.Run(ctx) })
	if w.auth != nil {
		w.running.Go(func() { w.auth.Run(ctx) })
	}
	if len(w.o.Pods) > 0 {
		w.running.Go(func() { w.pods.Run(ctx) })
	}
	w.running.Go(func() { w.ingresses.Run(ctx) })
	if w.o.APIServer == "" {
		w.running.Go(func() { w.locator.run(ctx) })
	}
}

// settled reports whether everything that is watched has been read, or cannot be.
func (w *Watcher) settled() bool {
	return mirrored(w.services).settled() && (w.auth == nil || mirrored(w.auth).settled()) && mirrored(w.ingresses).settled() &&
		(len(w.o.Pods) == 0 || mirrored(w.pods).settled()) && (!w.nodesRun || mirrored(w.nodes).settled()) &&
		(w.o.APIServer != "" || w.locator.location().asked)
}

// update derives the exposure and reports it if it has changed. It returns when to call it again
// even if nothing changes; zero means never.
func (w *Watcher) update(ctx context.Context, now time.Time) time.Time {
	f := w.facts()
	f.astray = w.astray(ctx, f)
	w.wasAstray = f.astray
	d := derive(f, now)
	if d.wantNodes && !w.nodesRun {
		w.nodesRun = true
		w.running.Go(func() { w.nodes.Run(ctx) })
		return now.Add(firstWait) // or when they have been read
	}
	if !f.services.settled() {
		return now.Add(firstWait) // the API server has not answered yet: nothing is known
	}
	if d.pending && w.last != nil && !w.last.pending && w.pendingSince.IsZero() {
		w.pendingSince = now
		f.pendingSince = now
		d = derive(f, now)
	}
	if !d.pending {
		w.pendingSince = time.Time{}
	}
	if d.again = w.compare(&d, now); f.astray && (d.again.IsZero() || d.again.After(now.Add(firstWait))) {
		d.again = now.Add(firstWait) // other pods are not watched
	}
	before := w.last
	w.last = &d
	if before == nil || !reflect.DeepEqual(before.Exposure, d.Exposure) {
		w.o.OnChange(d.Exposure)
	}
	return d.again
}

// compare adds a problem to an exposure that has lost addresses, for movedFor or until they are
// back. It returns when to call it again.
func (w *Watcher) compare(d *derived, now time.Time) time.Time {
	if w.last != nil {
		was, is := addresses(w.last.Endpoints), addresses(d.Endpoints)
		if !slices.Equal(was, is) {
			w.log.Info("addresses that the cluster routes here changed", "was", strings.Join(was, ", "), "now", strings.Join(is, ", "))
		}
		if lost(was, is) && !d.leadsNowhere() {
			p := check.OwnProblem{Name: NameMoved, Code: catalogue.ExposureMoved}
			p.Params.Was, p.Params.Seen, p.Params.Port = was, now, w.o.Port
			w.moved, w.movedUntil = &p, now.Add(movedFor)
		}
	}
	if w.moved == nil {
		return d.again
	}
	is := addresses(d.Endpoints)
	if !now.Before(w.movedUntil) || !lost(w.moved.Params.Was, is) {
		w.moved = nil // it has been told, or is as it was
		return d.again
	}
	p := *w.moved
	p.Params.Now = is
	d.Problems = append(d.Problems, p)
	if d.again.IsZero() || w.movedUntil.Before(d.again) {
		return w.movedUntil
	}
	return d.again
}

// leadsNowhere reports whether addresses are lost because the Service itself is missing or wrong.
func (d *derived) leadsNowhere() bool {
	return slices.ContainsFunc(d.Problems, func(p check.OwnProblem) bool {
		return slices.Contains([]catalogue.Code{catalogue.ServiceMissing, catalogue.ServicePort, catalogue.NoUDPWay}, p.Code)
	})
}

// lost reports whether an address is gone. Additional ones break nothing.
func lost(was, is []string) bool {
	return slices.ContainsFunc(was, func(a string) bool { return !slices.Contains(is, a) })
}

// astray reports whether the Service's selector matches no pod at all. One that matches other pods may
// lead to a proxy in front of the gateway. While no pod is active, nothing is known.
func (w *Watcher) astray(ctx context.Context, f facts) bool {
	s, ok := named(f.services, f.service)
	if !ok || len(s.Spec.Selector) == 0 || len(f.pods.list) == 0 {
		return false
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	if slices.ContainsFunc(f.pods.list, func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) }) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var others corev1.PodList
	err := w.core.Get().Namespace(w.o.Namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{LabelSelector: selector.String(), Limit: 1}, metav1.ParameterCodec).Do(ctx).Into(&others)
	switch {
	case apierrors.IsForbidden(err):
		return false
	case err != nil:
		return w.wasAstray // and asked again if so
	}
	return len(others.Items) == 0
}

// facts returns what is known: the options, the content of the mirrors, and the locator's answer.
func (w *Watcher) facts() facts {
	f := facts{
		namespace: w.o.Namespace, service: w.o.Service, auth: w.o.AuthService, port: w.o.Port, account: w.o.Account,
		services: mirrored(w.services), pods: mirrored(w.pods), nodes: mirrored(w.nodes), ingresses: mirrored(w.ingresses),
		configured: w.o.APIServer, located: w.locator.location(), pendingSince: w.pendingSince,
	}
	if w.auth != nil {
		a := mirrored(w.auth)
		f.services.list = append(f.services.list, a.list...)
		f.services.read = f.services.read && a.read
	}
	return f
}
