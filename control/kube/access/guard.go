package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
)

const (
	// admittedFor and refusedFor are how long an answer is cached: a removed label takes effect
	// soon, and a new one before someone gives up.
	admittedFor = 10 * time.Second
	refusedFor  = 2 * time.Second
	// staleFor is how long an address's last answer is used while the API server is away. Pods do
	// not come and go then, and addresses rarely move to another pod.
	staleFor = 10 * time.Minute
	// findTimeout bounds one request to the API server, and before it the wait for a place among
	// those that may be asked at a time.
	findTimeout = 3 * time.Second
	// appearAfter are the waits for a pod that is not there yet: the kubelet reports its address a
	// moment after its first container has started, which may be after that has connected. Three
	// seconds cover a busy kubelet.
	appearSteps = 5
	appearAfter = 200 * time.Millisecond
	// maxAddresses bounds the cache and the addresses that are asked about. Connections that wait
	// for an answer are bounded by package forward.
	maxAddresses = 4096
	// maxAsking bounds the questions at a time, askRate and askBurst the requests per second and at
	// once: a question is a request for each namespace, for which the API server searches its pods.
	maxAsking         = 64
	askRate, askBurst = 50, 100
)

// errBusy means that the guard's own limits did not allow a question in time, which says nothing
// about the API server.
var errBusy = errors.New("too many addresses are asked about at a time")

// GuardOptions configure a [Guard].
type GuardOptions struct {
	Cluster *kube.Cluster
	// Namespaces are those whose pods may be admitted: the gateway needs the right to list the pods
	// of each. The cluster's own namespace is included automatically.
	Namespaces []string
	// Own is the address of the gateway's own pod: its other containers may connect.
	Own netip.Addr
	// Account is the gateway's ServiceAccount (namespace:name), for messages; may be empty.
	Account string
	// Logger may be nil.
	Logger *slog.Logger
}

// Guard decides which pods may use which peer's services. It is safe for concurrent use.
type Guard struct {
	find func(context.Context, netip.Addr) ([]pod, error)
	o    GuardOptions
	log  *slog.Logger
	turn chan struct{} // held during a question
	pace *rate.Limiter // of requests

	mu     sync.Mutex
	known  map[netip.Addr]answer
	asking map[netip.Addr]*question
	failed string // why the last request failed, at least in part
	fails  bool   // it failed
	// problem is passed to notify, which may be nil.
	problem []check.OwnProblem
	notify  func([]check.OwnProblem)
}

// pod is a pod with an address.
type pod struct {
	name  string // namespace/name
	peers []string
	ends  bool // it is being deleted
}

// answer is what is known about an address.
type answer struct {
	pods []pod
	// at is when the API server answered; until is when to ask again.
	at, until time.Time
}

// question is a request to the API server in progress.
type question struct {
	done   chan struct{} // closed when answer and err are there
	answer answer
	err    error
}

// NewGuard returns a guard. It sends no request yet.
func NewGuard(o GuardOptions) (*Guard, error) {
	if o.Cluster == nil {
		return nil, errors.New("access: Cluster is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	core, err := o.Cluster.WithRate(-1, 0).Group(corev1.SchemeGroupVersion) // see request
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	o.Namespaces = withOwn(o.Cluster.Namespace(), o.Namespaces)
	f := finder{core: core, namespaces: o.Namespaces}
	return newGuard(f.find, o), nil
}

func newGuard(find func(context.Context, netip.Addr) ([]pod, error), o GuardOptions) *Guard {
	o.Own = o.Own.Unmap()
	return &Guard{find: find, o: o, log: o.Logger, turn: make(chan struct{}, maxAsking), pace: rate.NewLimiter(askRate, askBurst), known: map[netip.Addr]answer{}, asking: map[netip.Addr]*question{}}
}

// Admit returns why a client may not use a peer's services; nil if it may. It asks the API server
// unless the answer is cached, which takes some milliseconds, and little more than twice
// [findTimeout] at most.
func (g *Guard) Admit(peer string, from netip.AddrPort) error {
	ip := from.Addr().Unmap()
	if ip.IsLoopback() || ip == g.o.Own {
		return nil // a container of the gateway's own pod
	}
	now := time.Now()
	g.mu.Lock()
	a, ok := g.known[ip]
	g.mu.Unlock()
	if ok && now.Before(a.until) {
		why := g.judge(a, peer, ip)
		if why == nil || now.Sub(a.at) < refusedFor {
			return why
		}
	}
	next, err := g.ask(ip)
	if err == nil {
		return g.judge(next, peer, ip)
	}
	if ok && now.Sub(a.at) < staleFor {
		return g.judge(a, peer, ip)
	}
	return fmt.Errorf("which pod has the address %s is not known: %w", ip, err)
}

// ask asks the API server about an address, once for all concurrent callers.
func (g *Guard) ask(ip netip.Addr) (answer, error) {
	g.mu.Lock()
	if q := g.asking[ip]; q != nil {
		g.mu.Unlock()
		<-q.done
		return q.answer, q.err
	}
	if len(g.asking) >= maxAddresses {
		g.mu.Unlock()
		return answer{}, errBusy
	}
	q := &question{done: make(chan struct{})}
	g.asking[ip] = q
	g.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	var trouble error
	q.answer, trouble = g.appears(ctx, ip)
	cancel()
	if len(q.answer.pods) == 0 { // otherwise it does not matter what other namespaces have
		q.err = trouble
	}
	g.mu.Lock()
	delete(g.asking, ip)
	g.remember(ip, q.answer, q.err)
	other := !errors.Is(trouble, errBusy) && g.outcome(trouble)
	g.mu.Unlock()
	close(q.done)
	if other {
		g.logOutcome(trouble)
	}
	return q.answer, q.err
}

// appears asks until a pod has the address, or none will. An error together with pods means that
// not all namespaces could be searched.
func (g *Guard) appears(ctx context.Context, ip netip.Addr) (answer, error) {
	wait := appearAfter
	for i := range appearSteps {
		pods, err := g.request(ctx, ip)
		switch {
		case len(pods) > 0:
			return says(pods, admittedFor), err
		case err != nil && i == 0:
			return answer{}, err
		case err != nil: // none had it at the last request
			return says(nil, refusedFor), nil //nolint:nilerr // that is the answer
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return says(nil, refusedFor), nil
		}
		wait *= 2
	}
	return says(nil, refusedFor), nil
}

// request asks once, when the limits allow it. Addresses of no pod, of which there may be many,
// take a turn only meanwhile.
func (g *Guard) request(ctx context.Context, ip netip.Addr) ([]pod, error) {
	if g.pace.WaitN(ctx, min(max(len(g.o.Namespaces), 1), askBurst)) != nil {
		return nil, errBusy
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
	defer cancel()
	return g.find(ctx, ip)
}

// says returns a current answer that is valid for a while.
func says(pods []pod, hold time.Duration) answer {
	now := time.Now()
	return answer{pods: pods, at: now, until: now.Add(hold)}
}

// remember caches an answer. After a failure the previous one stays valid for a while, and is not
// requested again at once; g.mu is held.
func (g *Guard) remember(ip netip.Addr, a answer, err error) {
	if err != nil {
		old, ok := g.known[ip]
		if !ok {
			return
		}
		a = old
		a.until = time.Now().Add(admittedFor)
	}
	if _, there := g.known[ip]; !there && len(g.known) >= maxAddresses {
		g.forget()
	}
	g.known[ip] = a
}

// outcome reports whether a request ended differently than the previous one; g.mu is held.
func (g *Guard) outcome(err error) bool {
	reason, fails := string(apierrors.ReasonForError(err)), err != nil
	if refused := new(denied); errors.As(err, &refused) {
		reason += " " + strings.Join(refused.namespaces, " ")
	}
	other := fails != g.fails || reason != g.failed
	g.fails, g.failed = fails, reason
	return other
}

// Notify makes f be called, now and on every change, with the problem that pods may not be listed,
// or with none. f must not block.
func (g *Guard) Notify(f func([]check.OwnProblem)) {
	g.mu.Lock()
	g.notify = f
	problem := g.problem
	g.mu.Unlock()
	f(problem)
}

// logOutcome logs that requests fail, or succeed again.
func (g *Guard) logOutcome(err error) {
	if err == nil {
		g.log.Info("pod lookup works again")
	} else {
		g.log.Warn("failed to look up pods that connect to peers; admitting those already known", "for", staleFor, "error", err)
	}
	var list []check.OwnProblem
	if refused := new(denied); errors.As(err, &refused) {
		for _, ns := range refused.namespaces {
			p := check.OwnProblem{Name: NameAccess, Code: catalogue.ClusterForbidden}
			p.Params.Account, p.Params.Verbs, p.Params.Resource, p.Params.Namespace = g.o.Account, "list", "pods", ns
			p.Params.Detail = "its pods may use no peer's Service"
			list = append(list, p)
		}
	}
	g.mu.Lock()
	g.problem = list
	notify := g.notify
	g.mu.Unlock()
	if notify != nil {
		notify(list)
	}
}

// forget makes room: it drops stale answers, and half of all, first those about addresses of no
// pod, which may be forged, then the oldest.
func (g *Guard) forget() {
	old := time.Now().Add(-staleFor)
	maps.DeleteFunc(g.known, func(_ netip.Addr, a answer) bool { return a.at.Before(old) })
	all := slices.SortedFunc(maps.Keys(g.known), func(x, y netip.Addr) int {
		a, b := g.known[x], g.known[y]
		return cmp.Or(cmp.Compare(min(len(a.pods), 1), min(len(b.pods), 1)), a.at.Compare(b.at))
	})
	for _, ip := range all[:max(len(all)-maxAddresses/2, 0)] {
		delete(g.known, ip)
	}
}

// judge returns why the owner of an address may not use a peer's services; nil if it may. If
// several pods have it, which should not happen, each must be allowed to.
func (g *Guard) judge(a answer, peer string, ip netip.Addr) error {
	if len(a.pods) == 0 {
		return fmt.Errorf("%s is the address of no pod with a network of its own in the namespaces %s (it is a node's, or the way here hides the pod's; a pod of another namespace needs that in spec.kubernetes.peerServicesFrom, which the chart sets by its value peerServicesFrom)",
			ip, strings.Join(g.o.Namespaces, ", "))
	}
	for _, p := range a.pods {
		if p.ends {
			return fmt.Errorf("pod %s is being deleted", p.name)
		}
		if !slices.Contains(p.peers, peer) {
			return fmt.Errorf("pod %s has no label %s%s: %s", p.name, LabelAllow, peer, Allow)
		}
	}
	return nil
}

// peersOf returns the peers that a pod's labels allow it to use.
func peersOf(labels map[string]string) []string {
	var out []string
	for k, v := range labels {
		if peer, ok := strings.CutPrefix(k, LabelAllow); ok && v == Allow {
			out = append(out, peer)
		}
	}
	slices.Sort(out)
	return out
}
