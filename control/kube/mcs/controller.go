package mcs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/lease"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/control/kube/objects"
	services "github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// gather is how long to wait for further changes after one: the pods of a Deployment appear one
	// after the other.
	gather = 100 * time.Millisecond
	// After each turn there is a pause calmer times as long as it took, but at most maxCalm. So
	// pods that come and go, of whatever service, do not take the processor.
	calmer  = 10
	maxCalm = time.Second
	// kindsAgain is the interval at which the kinds are looked for while the cluster does not have
	// them.
	kindsAgain = 15 * time.Second
	// refusedAgain is the longest pause before a request that the API server keeps refusing is
	// tried again. refusedTold is how long it must refuse it until that is reported.
	refusedAgain = time.Minute
	refusedTold  = 10 * time.Second
	// appliedAgain is the interval at which something is applied to an object that it did not change.
	appliedAgain = time.Hour
	// firstRetry doubles with each failure up to maxRetry, and with each refusal up to
	// refusedAgain.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 15 * time.Second
	// unheardFor is how long after the start what is imported from a peer that was not heard since
	// stays as it is. Most are heard within that time.
	unheardFor = 30 * time.Second
	// leaveTimeout bounds the writes at the end: another replica may be waiting.
	leaveTimeout = 2 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// The client's own limits, in requests per second and in a burst: a gateway that takes over
	// writes an EndpointSlice for each service.
	requestRate  = 300
	requestBurst = 600
	// writers is the number of concurrent requests.
	writers = 16
)

// Options configure a [Controller]. All but Namespaces, Lookup, OnProblems and Logger are required.
type Options struct {
	Cluster *kube.Cluster
	// Services is the gateway.
	Services services.Services
	// Release marks our objects: it is the label app.kubernetes.io/instance.
	Release string
	// ID is this cluster's ID in the clusterset: the gateway's name.
	ID string
	// Address is where the gateway listens for services of peers.
	Address netip.Addr
	// Namespaces are those that may be read; none means all.
	Namespaces []string
	// Lookup queries the cluster's DNS; nil uses the pod's resolver.
	Lookup Lookup
	// DNS: the gateway serves names itself, through the Service Release-dns in its namespace.
	DNS bool
	// OnProblems is called by Run when the problems have changed; may be nil.
	OnProblems func([]check.OwnProblem)
	// Logger may be nil.
	Logger *slog.Logger
}

// Controller reconciles exports and imports while [Controller.Run] runs.
type Controller struct {
	o       Options
	log     *slog.Logger
	cluster *kube.Cluster
	wake    wake.Signal

	// Owned by Run.
	problems []check.OwnProblem
}

// New returns a controller. It sends no request yet.
func New(o Options) (*Controller, error) {
	if o.Cluster == nil || o.Services == nil || o.Release == "" || o.ID == "" || !o.Address.IsValid() {
		return nil, errors.New("mcs: Cluster, Services, Release, ID and Address are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupNetIP
	}
	return &Controller{
		o: o, log: o.Logger, cluster: o.Cluster.WithRate(requestRate, requestBurst), wake: wake.New(),
	}, nil
}

// Run reconciles until ctx ends. It leaves the objects to the next gateway, but empties the
// endpoints of Services that lead to this pod, unless another replica has taken the role already
// ([lease.ErrLost]). Connections are then refused instead of being lost.
func (c *Controller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := c.open(ctx)
		if err == nil {
			err = s.run(ctx)
			if ctx.Err() != nil && !errors.Is(context.Cause(ctx), lease.ErrLost) {
				s.leave(context.WithoutCancel(ctx))
			}
		}
		if ctx.Err() == nil {
			c.tell([]check.OwnProblem{missing(err)})
			c.log.Debug("services of clusters cannot be looked at", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(kindsAgain):
		}
	}
	c.tell(nil)
}

// missing returns the problem that a session cannot begin or continue.
func missing(err error) check.OwnProblem {
	p := objects.Problem(err, exportKind.qualified(), "")
	p.Name = check.NameServices
	if kinds := missingKinds(""); errors.As(err, &kinds) {
		p.Code, p.Params.Detail = catalogue.MCSMissing, string(kinds)
	}
	return p
}

// tell reports the problems if they have changed.
func (c *Controller) tell(list []check.OwnProblem) {
	if reflect.DeepEqual(list, c.problems) {
		return
	}
	c.problems = list
	if c.o.OnProblems != nil {
		c.o.OnProblems(list)
	}
}

// session is the controller's work with one version of the API.
type session struct {
	*Controller
	clients clients
	places  []*place
	writer  *writer
	names   *names
	refused []check.OwnProblem // what the gateway says of exports and imports
	calm    time.Time          // until then there is no turn
	all     *namespaces        // nil when they are named
	began   time.Time
}

// open begins a session: it queries the API's version.
func (c *Controller) open(ctx context.Context) (*session, error) {
	version, err := versionOf(ctx, c.cluster)
	if err != nil {
		return nil, err
	}
	s := &session{Controller: c, names: &names{lookup: c.o.Lookup}, began: time.Now()}
	if s.clients, err = newClients(c.cluster, version); err != nil {
		return nil, err
	}
	if c.o.DNS {
		s.names.own = s.ownServer
	}
	s.writer = &writer{clients: s.clients, log: c.log, refused: map[id]refusal{}, applied: map[target]applied{}}
	names := c.o.Namespaces
	if len(names) == 0 {
		names, s.all = []string{""}, s.clients.namespaces(c.wake.Set)
	}
	for _, name := range names {
		s.places = append(s.places, s.clients.place(name, c.wake.Set))
	}
	return s, nil
}

// run works until ctx ends or kinds are missing. The error says which.
func (s *session) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer s.names.asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, p := range s.places {
		p.run(ctx, &running)
	}
	if s.all != nil {
		running.Go(func() { s.all.Run(ctx) })
	}
	delay := firstRetry
	var due time.Time
	next := time.NewTimer(0)
	defer next.Stop()
	_, changed := s.o.Services.State()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case problem := <-s.names.answer:
			s.names.answered(problem)
			s.tell(s.found())
			continue
		case <-s.wake:
			due = s.soon(next, due)
			continue
		case <-changed:
			_, changed = s.o.Services.State()
			due = s.soon(next, due)
			continue
		case <-next.C:
		}
		if kinds := s.missing(); kinds != "" {
			return kinds
		}
		again, failed := s.turn(ctx)
		if failed {
			again, delay = delay, min(2*delay, maxRetry)
		} else {
			delay = firstRetry
		}
		next.Reset(again)
		due = time.Now().Add(again)
		s.tell(s.found())
	}
}

// soon brings a timer that is due at a time forward, to when further changes were waited for and
// the pause is over.
func (s *session) soon(next *time.Timer, due time.Time) time.Time {
	wait := max(gather, time.Until(s.calm))
	if at := time.Now().Add(wait); due.After(at) {
		next.Reset(wait)
		return at
	}
	return due
}

// calm returns the pause after a turn that took so long.
func calm(took time.Duration) time.Duration { return min(calmer*took, maxCalm) }

// leave empties the EndpointSlices through which Services lead to this gateway's listeners.
func (s *session) leave(ctx context.Context) {
	seen, ok := s.look()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	s.writer.run(ctx, s.empty(seen, func(*discoveryv1.EndpointSlice) bool { return true }))
}

// empty returns the steps that empty those of the EndpointSlices through which Services lead to this
// gateway's listeners.
func (s *session) empty(seen seen, which func(*discoveryv1.EndpointSlice) bool) (steps []step) {
	for i, x := range seen.objects {
		slice, is := x.(*discoveryv1.EndpointSlice)
		if is && s.o.ours(x) && slice.Labels[discoveryv1.LabelServiceName] != "" && slice.Labels[v1beta1.LabelSourceCluster] != s.o.ID && len(slice.Endpoints) > 0 &&
			!s.writer.waits(i) && which(slice) {
			steps = append(steps, s.writer.noted(i, func(ctx context.Context) error { return s.writer.empty(ctx, i, slice.ResourceVersion) }))
		}
	}
	return steps
}

// expected returns the peers whose services our EndpointSlices expect at ports of this gateway's
// listeners.
func (s *session) expected(seen seen) map[uint16]string {
	out, here := map[uint16]string{}, s.o.Address.String()
	leadsHere := func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, here) }
	for _, x := range seen.objects {
		slice, is := x.(*discoveryv1.EndpointSlice)
		if !is || !s.o.ours(x) || !slices.ContainsFunc(slice.Endpoints, leadsHere) {
			continue
		}
		labels := slice.Labels
		if service := seen.services[types.NamespacedName{Namespace: slice.Namespace, Name: labels[discoveryv1.LabelServiceName]}]; service != nil && labels[v1beta1.LabelSourceCluster] == "" {
			labels = service.Labels // it is that of one backend
		}
		if peer := labels[v1beta1.LabelSourceCluster]; peer != "" && peer != s.o.ID {
			for _, p := range slice.Ports {
				out[uint16(value(p.Port))] = peer
			}
		}
	}
	return out
}

// unheard returns the steps that empty the EndpointSlices of peers that have not announced their
// exports for unheardFor since the start, of services that other clusters export, too. Nothing
// listens there, and after a crash it is an earlier pod's address.
func (s *session) unheard(seen seen, awaited []string, imports []services.Import, shall map[id]bool) []step {
	if time.Since(s.began) < unheardFor || len(awaited) == 0 {
		return nil
	}
	others := map[services.Name]bool{}
	for _, i := range imports {
		others[i.Name] = true
	}
	return s.empty(seen, func(x *discoveryv1.EndpointSlice) bool {
		return slices.Contains(awaited, x.Labels[v1beta1.LabelSourceCluster]) && !shall[id{sliceKind, x.Namespace, x.Name}] &&
			others[services.Name{Namespace: x.Namespace, Name: x.Labels[v1beta1.LabelServiceName]}]
	})
}

// missing returns the kinds that the API server does not have, or no longer.
func (s *session) missing() missingKinds {
	for _, p := range s.places {
		var kinds []string
		for k, err := range map[kind]error{exportKind: p.exports.Err(), importKind: p.imports.Err()} {
			if apierrors.IsNotFound(err) {
				kinds = append(kinds, k.qualified())
			}
		}
		if slices.Sort(kinds); len(kinds) > 0 {
			return missingKinds(strings.Join(kinds, " and "))
		}
	}
	return ""
}

// turn passes the exports to the gateway, reconciles the objects, and returns when to be called
// again. failed says that something is worth another try soon.
func (s *session) turn(ctx context.Context) (again time.Duration, failed bool) {
	began := time.Now()
	seen, ok := s.look()
	if !ok {
		return maxRetry, false // whatever is missing wakes
	}
	exports := exportsOf(seen, addressType(s.o.Address))
	list := make([]services.Export, 0, len(exports))
	for _, e := range exports {
		if e.invalid == nil {
			list = append(list, e.export)
		}
	}
	s.o.Services.Reserve(s.expected(seen))
	s.o.Services.SetExports(list)
	s.o.Services.SetNamespaces(seen.namespaces)
	state, _ := s.o.Services.State()

	m := maker{o: s.o, kinds: s.clients.version, seen: seen, exports: map[services.Name]services.Export{}, dead: map[mirror.Object]bool{}}
	for _, e := range list {
		m.exports[e.Name] = e
	}
	imports := m.apart(state.Imports)
	grace := unheardFor - time.Since(s.began)
	if len(state.Awaited) == 0 {
		grace = 0
	}
	if grace > 0 {
		m.hold(imports, state.Awaited)
	}
	m.share(imports)
	// One import after the other, so that objects that are already right are not held in memory.
	wanted := func(yield func(object) bool) {
		for _, i := range imports {
			m.made = m.made[:0]
			m.add(i)
			for _, o := range m.made {
				if !yield(o) {
					return
				}
			}
		}
		for _, o := range statusesOf(exports, state, m.held, seen.now) {
			if !yield(o) {
				return
			}
		}
	}
	kept := keeper(seen, state.Awaited)
	keep := func(x mirror.Object) bool { return kept(x) && !m.dead[x] }
	steps, shall, made := s.writer.plan(wanted, seen.objects, s.o, keep)
	s.refused = check.OfServices(slices.Concat(state.Problems, m.problems))
	s.calm = time.Now().Add(calm(time.Since(began)))
	others, err := s.owners(ctx, seen, made)
	if others {
		steps, shall, _ = s.writer.plan(wanted, seen.objects, s.o, keep)
	}
	if err != nil {
		s.log.Debug("what gives the right to import is not known yet", "error", err)
		return maxRetry, true
	}
	failed = s.writer.run(ctx, append(steps, s.unheard(seen, state.Awaited, imports, shall)...))
	again = s.names.look(ctx, seen, func(x *v1beta1.ServiceImport) bool {
		return s.o.ours(x) && (shall[id{importKind, x.Namespace, x.Name}] || keep(x))
	})
	if grace > 0 {
		again = min(again, grace)
	}
	return max(min(again, s.writer.again(began)), time.Until(s.calm)), failed
}

// owners looks up the owners of the objects in places where some are to be made, and in new places.
// It reports whether there are others than before. A Role that was deleted and made again is
// another: what its predecessor owns is deleted by the garbage collector.
func (s *session) owners(ctx context.Context, seen seen, made map[string]bool) (others bool, _ error) {
	for _, p := range s.places {
		if p.denied() || p.known && !made[p.namespace] && (p.namespace != "" || len(made) == 0) {
			continue
		}
		owner, err := s.clients.owner(ctx, p.namespace, s.o.role())
		switch {
		case err == nil || apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err) && p.known:
			continue
		case apierrors.IsForbidden(err):
			s.log.Debug("what gives the right to import is not known, so an uninstalled gateway leaves objects", "namespace", p.namespace, "error", err)
		case p.known:
			return others, nil // The writes will fail, too.
		default:
			return others, err
		}
		others = others || !reflect.DeepEqual(owner, p.owner)
		p.owner, p.known = owner, true
		seen.owners[p.namespace] = owner
	}
	return others, nil
}

// found returns the current problems: what may not be watched, and what was refused.
func (s *session) found() []check.OwnProblem {
	out := slices.Concat(s.writer.problems(), s.names.problem, s.refused)
	for _, p := range s.places {
		out = append(out, p.problems()...)
	}
	if s.all != nil {
		out = append(out, problemOf(s.all.Err(), "namespaces", "")...)
	}
	return sortedProblems(out)
}
