package forward

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Flows is the table of open connections. It is safe for concurrent use; no lock is held
// over I/O.
type Flows struct {
	limits  Limits
	buffers *buffers

	wg sync.WaitGroup // one for each open flow

	mu       sync.Mutex
	stopping bool
	open     map[*flow]struct{}
	used     map[usageKey]usage
}

type usageKey struct{ direction, peer string }

// NewFlows makes an empty table.
func NewFlows(l Limits) *Flows {
	l = l.withDefaults()
	return &Flows{limits: l, buffers: newBuffers(l.Buffers, l.PeerBuffers),
		open: make(map[*flow]struct{}), used: make(map[usageKey]usage)}
}

// begin admits a connection that is to be opened. The caller ends it with end. A reason
// that is not empty says why it was not admitted.
func (t *Flows) begin(direction, peer, service, remote string) (*flow, Reason) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flow{table: t, direction: direction, peer: peer, service: service, remote: remote,
		startedAt: time.Now(), ctx: ctx, cancel: cancel, halfOpen: true}
	k := usageKey{direction, peer}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopping {
		cancel()
		return nil, Stopping
	}
	u := t.used[k]
	if r := t.limits.admit(u, len(t.open)); r != "" {
		cancel()
		return nil, r
	}
	u.flows++
	u.halfOpen++
	t.used[k] = u
	t.open[f] = struct{}{}
	t.wg.Add(1)
	return f, ""
}

// established moves a flow from half-open to open.
func (t *Flows) established(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.halfOpen {
		f.halfOpen = false
		k := usageKey{f.direction, f.peer}
		u := t.used[k]
		u.halfOpen--
		t.used[k] = u
	}
}

// end takes a flow out of the table. Its connections are closed by then.
func (t *Flows) end(f *flow) {
	f.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, f)
	k := usageKey{f.direction, f.peer}
	u := t.used[k]
	u.flows--
	if f.halfOpen {
		u.halfOpen--
	}
	if u == (usage{}) {
		delete(t.used, k)
	} else {
		t.used[k] = u
	}
	t.wg.Done()
}

// List gives the established flows of one peer, oldest first.
func (t *Flows) List(peer string) []api.Flow {
	out := []api.Flow{}
	for _, f := range t.matching(func(f *flow) bool { return f.peer == peer && !f.halfOpen }) {
		out = append(out, f.snapshot())
	}
	slices.SortFunc(out, func(a, b api.Flow) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Remote, b.Remote))
	})
	return out
}

// Count is how many connections are open or being opened, by direction.
func (t *Flows) Count() map[string]int {
	n := map[string]int{DirectionInbound: 0, DirectionOutbound: 0}
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.open {
		n[f.direction]++
	}
	return n
}

// ClosePeer resets every flow of a peer, in both directions, those being opened
// included, and gives their number. The caller has taken the peer out of its
// configuration first, or new ones may follow.
func (t *Flows) ClosePeer(peer string) int {
	return t.abortMatching(func(f *flow) bool { return f.peer == peer })
}

// Drain admits no more flows and waits until those that are open have ended. When ctx
// ends first the rest is reset. On return no goroutine of a flow is left. The error is
// that of ctx when it cut flows short.
func (t *Flows) Drain(ctx context.Context) error {
	t.mu.Lock()
	t.stopping = true
	t.mu.Unlock()

	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	n := t.abortMatching(func(*flow) bool { return true })
	<-done
	if n == 0 {
		return nil
	}
	return context.Cause(ctx)
}

func (t *Flows) abortMatching(match func(*flow) bool) int {
	flows := t.matching(match)
	for _, f := range flows {
		f.abort()
	}
	return len(flows)
}

// matching collects flows; match is called under the lock.
func (t *Flows) matching(match func(*flow) bool) []*flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*flow
	for f := range t.open {
		if match(f) {
			out = append(out, f)
		}
	}
	return out
}
