package auth

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// A gateway says hello, checks and renews a few times a minute.
	requestRate  = rate.Limit(5)
	requestBurst = 128
	// An identity costs a signature and is valid for hours: one in 10 s, with a burst for a joiner
	// that is being set up.
	identityRate  = rate.Limit(0.1)
	identityBurst = 4
	// A peer rarely rotates, and repeats it if the answer was lost.
	rotationRate  = rate.Limit(0.1)
	rotationBurst = 3
	// Concurrent requests, and how long one waits for its turn.
	peerConcurrency  = 8
	totalConcurrency = 64
	turnTimeout      = 5 * time.Second
	// Writes caused by the holders of all tickets together, so that many tickets are no way around
	// the limit of each: a burst for every open ticket at once, and then a slow rate.
	ticketRate  = rate.Limit(1)
	ticketBurst = ticket.MaxOpen
	// Answers per second to addresses that are no peer's, in total, and their connections.
	unknownRate  = rate.Limit(5)
	unknownBurst = 32
	unknownConns = 16
	// A peer that was not heard for this long has its full burst again.
	forgetAfter = 5 * time.Minute
)

// limits bounds what each caller can request, so that none can starve another. Strangers are not
// counted, so there are no more entries than peers and tickets.
type limits struct {
	total chan struct{}
	// load is held during a throughput measurement.
	load chan struct{}
	// tickets is shared by one-time peers, unknown by strangers.
	tickets, unknown *rate.Limiter

	mu    sync.Mutex
	peers map[owner]*allowance
	swept time.Time
}

// owner is who has an allowance: a peer by its name, which it keeps with another key, or the
// one-time peer of a ticket by its key. A peer chooses its keys, so with each it would have another
// burst.
type owner struct {
	name string
	key  peer.PublicKey
}

func (c Caller) owner() owner {
	if c.Name != "" {
		return owner{name: c.Name}
	}
	return owner{key: c.PublicKey}
}

type allowance struct {
	requests *rate.Limiter
	buckets  map[string]*rate.Limiter // see endpoint.bucket; immutable
	slots    chan struct{}
	seen     time.Time
}

// bucket names the bucket of an endpoint: its path's own, or that of its cost.
func (e *endpoint) bucket() (string, pace) {
	if e.pace != (pace{}) {
		return e.path, e.pace
	}
	return strconv.Itoa(int(e.cost)), paces[e.cost]
}

func newLimits() *limits {
	return &limits{
		total: make(chan struct{}, totalConcurrency), load: make(chan struct{}, 1), peers: make(map[owner]*allowance),
		tickets: rate.NewLimiter(ticketRate, ticketBurst), unknown: rate.NewLimiter(unknownRate, unknownBurst),
	}
}

// of returns an owner's allowance.
func (l *limits) of(k owner, now time.Time) *allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > forgetAfter {
		l.swept = now
		maps.DeleteFunc(l.peers, func(_ owner, a *allowance) bool { return now.Sub(a.seen) > forgetAfter && len(a.slots) == 0 })
	}
	a := l.peers[k]
	if a == nil {
		a = &allowance{
			requests: rate.NewLimiter(requestRate, requestBurst),
			buckets:  make(map[string]*rate.Limiter), slots: make(chan struct{}, peerConcurrency),
		}
		for i := range endpoints {
			if name, p := endpoints[i].bucket(); a.buckets[name] == nil {
				a.buckets[name] = rate.NewLimiter(p.rate, p.burst)
			}
		}
		l.peers[k] = a
	}
	a.seen = now
	return a
}

// enter waits for a turn; call leave after it succeeded.
func (l *limits) enter(ctx context.Context, a *allowance) bool {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	select {
	case l.total <- struct{}{}:
		return true
	case <-ctx.Done():
		<-a.slots
		return false
	}
}

func (l *limits) leave(a *allowance) {
	<-l.total
	<-a.slots
}

// arrive charges a request to a caller's allowance, or returns how long to wait.
func (l *limits) arrive(a *allowance, c *call, now time.Time) (wait time.Duration) {
	if e := c.endpoint; e != nil && e.apart {
		name, _ := e.bucket()
		if wait = spend(a.buckets[name], now); wait > 0 {
			return wait
		}
	}
	return spend(a.requests, now)
}

// charge charges the rest of a request's cost once it has been read.
func (l *limits) charge(a *allowance, c *call, now time.Time) (wait time.Duration) {
	if c.endpoint.apart {
		return 0
	}
	name, _ := c.endpoint.bucket()
	if wait = spend(a.buckets[name], now); wait == 0 && c.Kind == KindOneTime && c.endpoint.cost == costWrite {
		wait = spend(l.tickets, now)
	}
	return wait
}

// spend takes one from a bucket, or returns how long until there is one.
func spend(r *rate.Limiter, now time.Time) (wait time.Duration) {
	res := r.ReserveN(now, 1)
	if wait = res.DelayFrom(now); wait > 0 {
		res.CancelAt(now)
	}
	return wait
}
