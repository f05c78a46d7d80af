package auth

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// A gateway says hello, checks and renews a few times a minute.
	requestRate  = rate.Limit(5)
	requestBurst = 128
	// An identity costs a signature and is good for hours: one in 10 s, and some in a
	// row for a joiner that is being set up.
	identityRate  = rate.Limit(0.1)
	identityBurst = 8
	// Requests worked on at a time, and how long one waits for its turn.
	peerConcurrency  = 8
	totalConcurrency = 64
	turnTimeout      = 5 * time.Second
	// A peer that was not heard of for so long has its full burst again.
	forgetAfter = 5 * time.Minute
)

// limits bounds what each peer can ask of us, so that none can starve another. Only
// peers are counted, so there are no more entries than peers.
type limits struct {
	total chan struct{}
	// load is held by the one whose throughput is measured.
	load chan struct{}

	mu    sync.Mutex
	peers map[peer.PublicKey]*allowance
	swept time.Time
}

type allowance struct {
	requests, identities, reports, loads, rotations *rate.Limiter
	slots                                           chan struct{}
	seen                                            time.Time
}

func newLimits() *limits {
	return &limits{total: make(chan struct{}, totalConcurrency), load: make(chan struct{}, 1), peers: make(map[peer.PublicKey]*allowance)}
}

// of gives a peer's allowance.
func (l *limits) of(k peer.PublicKey, now time.Time) *allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > forgetAfter {
		l.swept = now
		for key, a := range l.peers {
			if now.Sub(a.seen) > forgetAfter && len(a.slots) == 0 {
				delete(l.peers, key)
			}
		}
	}
	a := l.peers[k]
	if a == nil {
		a = &allowance{
			requests:   rate.NewLimiter(requestRate, requestBurst),
			identities: rate.NewLimiter(identityRate, identityBurst),
			reports:    rate.NewLimiter(reportRate, reportBurst),
			loads:      rate.NewLimiter(loadRate, loadBurst),
			rotations:  rate.NewLimiter(identityRate, identityBurst),
			slots:      make(chan struct{}, peerConcurrency),
		}
		l.peers[k] = a
	}
	a.seen = now
	return a
}

// enter waits for a turn; leave must be called after it succeeded.
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

// spend takes one from a bucket, or says how long until there is one.
func spend(r *rate.Limiter, now time.Time) (wait time.Duration) {
	res := r.ReserveN(now, 1)
	if wait = res.DelayFrom(now); wait > 0 {
		res.CancelAt(now)
	}
	return wait
}
