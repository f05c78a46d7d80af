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

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
)

const (
	// admittedFor and refusedFor are how long an answer is cached: a removed label takes effect
	// soon, and a new one before someone gives up. Whoever keeps trying is refused for twice as long
	// each time, up to maxRefused.
	admittedFor = 10 * time.Second
	refusedFor  = 2 * time.Second
	maxRefused  = 30 * time.Second
	// newAfter is when an address that was refused may belong to a new pod.
	newAfter = 2 * maxRefused
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
	// Questions leave askReserve of askBurst for each kind that is more urgent.
	maxAsking         = 64
	askRate, askBurst = 50, 100
	askReserve        = askBurst / 5
)

// urgency is how urgent a question is: strangers, of which there may be many, must not delay those
// about pods. Datagrams may claim to come from any address; whoever connects by TCP has its own.
type urgency int

const (
	renewal   urgency = iota // the last answer admitted the client
	connects                 // nothing is known about the address, and it is the client's own
	first                    // nothing is known about the address
	again                    // the client was refused a moment ago, or its pod is not there yet
	urgencies                // their number
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
	// Own is the address of the gateway's own pod: its other containers may connect, also from
	// loopback addresses. The zero value is for a pod on its node's network, where any program of
	// the node may connect from these.
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
	// next is held by the question that takes from pace next.
	next [urgencies]chan struct{}

	mu     sync.Mutex
	known  map[netip.Addr]answer
	asking map[asked]*question
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
	err  error // there are none where pods may be listed, and elsewhere they may not
	// at is when the API server answered; until is when to ask again about those that it admits.
	at, until time.Time
	// again is when to ask again about those that it refuses: refusal after the last question.
	again   time.Time
	refusal time.Duration
	// connected is when a question about a client that connects had the same kind of answer, none or
	// some pods; zero is never. Only then is it the client's own: whoever sends datagrams may have
	// forged the address that a pod gets next.
	connected time.Time
}

// asked identifies a question. Nobody who connects waits for one about a datagram.
type asked struct {
	ip       netip.Addr
	connects bool
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
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
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
	g := &Guard{find: find, o: o, log: o.Logger, turn: make(chan struct{}, maxAsking), pace: rate.NewLimiter(askRate, askBurst), known: map[netip.Addr]answer{}, asking: map[asked]*question{}}
	for u := range g.next {
		g.next[u] = make(chan struct{}, 1)
	}
	return g
}

// Admit returns why a client of a protocol may not use a peer's services; nil if it may. It asks the API server
// unless the answer is cached, which takes some milliseconds, and little more than twice
// [findTimeout] at most.
func (g *Guard) Admit(peer string, by api.Protocol, from netip.AddrPort) error {
	ip := from.Addr().Unmap()
	if g.own(ip) {
		return nil
	}
	now := time.Now()
	g.mu.Lock()
	a, ok := g.known[ip]
	g.mu.Unlock()
	u := first
	if by == api.TCP {
		u = connects
	}
	if ok {
		why := g.judge(a, peer, ip)
		refused := why != nil && (u == first || now.Sub(a.connected) < newAfter)
		switch {
		case why == nil && now.Before(a.until), refused && now.Before(a.again):
			return why
		case why == nil:
			u = renewal
		case refused && now.Sub(a.at) < newAfter:
			u = again
		}
	}
	next, err := g.ask(asked{ip, by == api.TCP}, u)
	if err == nil {
		return g.judge(next, peer, ip)
	}
	if ok && now.Sub(a.at) < staleFor {
		return g.judge(a, peer, ip)
	}
	return unknown(ip, err)
}

func unknown(ip netip.Addr, err error) error {
	return fmt.Errorf("which pod has the address %s is not known: %w", ip, err)
}

// own reports whether an address is the gateway's own pod's, whose other containers may connect.
func (g *Guard) own(ip netip.Addr) bool {
	return g.o.Own.IsValid() && (ip.IsLoopback() || ip == g.o.Own)
}

// Known reports whether the last answer about a client admitted it. It does not ask the API server.
func (g *Guard) Known(peer string, from netip.AddrPort) bool {
	ip := from.Addr().Unmap()
	g.mu.Lock()
	a, ok := g.known[ip]
	g.mu.Unlock()
	return g.own(ip) || ok && time.Since(a.at) < staleFor && g.judge(a, peer, ip) == nil
}

// ask asks the API server about an address, once for all concurrent callers.
func (g *Guard) ask(about asked, u urgency) (answer, error) {
	g.mu.Lock()
	if q := g.asking[about]; q != nil {
		g.mu.Unlock()
		<-q.done
		return q.answer, q.err
	}
	if len(g.asking) >= maxAddresses && u > connects {
		g.mu.Unlock()
		return answer{}, errBusy
	}
	q := &question{done: make(chan struct{})}
	g.asking[about] = q
	g.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	var trouble error
	q.answer, trouble = g.appears(ctx, about.ip, u)
	cancel()
	if len(q.answer.pods) == 0 { // otherwise it does not matter what other namespaces have
		q.err = trouble
	}
	g.mu.Lock()
	delete(g.asking, about)
	g.remember(about, u, q.answer, q.err)
	other := !errors.Is(trouble, errBusy) && g.outcome(trouble)
	g.mu.Unlock()
	close(q.done)
	if other {
		g.logOutcome(trouble)
	}
	return q.answer, q.err
}

// appears asks until a pod has the address, or none will: once if there was none a moment ago. An
// error together with pods means that not all namespaces could be searched.
func (g *Guard) appears(ctx context.Context, ip netip.Addr, u urgency) (answer, error) {
	steps, wait := appearSteps, appearAfter
	if u == again {
		steps = 1
	}
	var last answer // of the last request that was answered
	var elsewhere error
	for i := range steps {
		pods, err := g.request(ctx, ip, u)
		if isDenied(err) {
			elsewhere, err = err, nil
		}
		switch {
		case err != nil && i == 0:
			return answer{}, err
		case err != nil:
			return last, elsewhere
		}
		if last = says(pods); len(pods) > 0 || i == steps-1 {
			return last, elsewhere
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return last, elsewhere
		}
		wait *= 2
		u = again
	}
	return last, elsewhere
}

// request asks once, when the limits allow it. Addresses of no pod, of which there may be many,
// take a turn only meanwhile.
func (g *Guard) request(ctx context.Context, ip netip.Addr, u urgency) ([]pod, error) {
	if err := g.take(ctx, u); err != nil {
		return nil, err
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

// take waits until the pace allows a question, and enough is left for the more urgent ones.
func (g *Guard) take(ctx context.Context, u urgency) error {
	select {
	case g.next[u] <- struct{}{}:
		defer func() { <-g.next[u] }()
	case <-ctx.Done():
		return errBusy
	}
	n := min(max(len(g.o.Namespaces), 1), askBurst-askReserve*int(urgencies-1))
	for {
		missing := float64(n+askReserve*int(u)) - g.pace.Tokens()
		if missing <= 0 && g.pace.AllowN(time.Now(), n) {
			return nil
		}
		t := time.NewTimer(time.Duration(max(missing, 0)/askRate*float64(time.Second)) + 1)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errBusy
		}
	}
}

// says returns a current answer.
func says(pods []pod) answer {
	now := time.Now()
	return answer{pods: pods, at: now, until: now.Add(admittedFor)}
}

// remember caches an answer, unless a later request was answered before. After a failure the previous
// one stays valid for a while, and is not requested again at once; g.mu is held.
func (g *Guard) remember(about asked, u urgency, a answer, err error) {
	now, ip := time.Now(), about.ip
	old, there := g.known[ip]
	switch {
	case err == nil && !a.at.Before(old.at), isDenied(err) && len(old.pods) == 0:
		a.err = err
		switch {
		case about.connects:
			a.connected = a.at
		case min(len(a.pods), 1) == min(len(old.pods), 1):
			a.connected = old.connected
		}
	case !there:
		return
	default:
		a = old
		if err != nil && now.Sub(a.at) < staleFor {
			a.until = now.Add(admittedFor)
		}
	}
	a.refusal = refusedFor
	if u == again {
		a.refusal = max(refusedFor, min(2*old.refusal, maxRefused))
	}
	a.again = now.Add(a.refusal)
	if !there && len(g.known) >= maxAddresses {
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
	switch {
	case a.err != nil:
		return unknown(ip, a.err)
	case len(a.pods) == 0:
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
