package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/api"
)

// drainIdle is how often Drain checks whether connections carry data. A transfer that stalls for
// that long has little hope to finish during a shutdown, for which Kubernetes allows 30 s.
const drainIdle = 3 * time.Second

// ErrIdle: connections were reset because nothing moved on them.
var ErrIdle = errors.New("nothing moved on them")

// Flows is the table of open connections. It is safe for concurrent use; no lock is held
// over I/O.
type Flows struct {
	limits    Limits                 // those of rates under mu
	buffers   [workload + 1]*buffers // by class
	drainIdle time.Duration          // see Drain

	wg sync.WaitGroup // one for each open flow

	mu       sync.Mutex
	stopping bool
	open     map[*flow]struct{}
	opened   [unadmitted + 1]int // of open, by class
	used     map[share]*account
	arriving map[share]*rate.Limiter // inbound

	udp   *udpFlows
	uses  uses
	loops *loops
}

// class is what a connection is for.
type class uint8

const (
	access   class = iota // to the API server and named services
	control               // to auth
	workload              // to services of clusters
	// unadmitted is of local clients that are not admitted yet, to any service. They take no places of
	// those that are.
	unadmitted
)

// classOf returns the class from a service's name: services of clusters have a namespace in it.
func classOf(service string) class {
	switch {
	case service == api.ServiceAuth:
		return control
	case strings.Contains(service, "/"):
		return workload
	}
	return access
}

// share identifies the flows that are counted together: those of one peer in one direction,
// connections and flows of datagrams separately, and connections by class. So a client behind the
// peer cannot prevent the gateways' own requests. Those of clients that are not admitted yet are
// counted by the client's address instead.
type share struct {
	direction, peer string
	class           class
	udp             bool
	client          netip.Addr
}

func shareOf(direction, peer, service string) share {
	return share{direction: direction, peer: peer, class: classOf(service)}
}

func unadmittedShare(peer string, client netip.Addr) share {
	return share{direction: DirectionOutbound, peer: peer, class: unadmitted, client: client.Unmap()}
}

// NewFlows returns an empty table.
func NewFlows(l Limits) *Flows {
	l = l.withDefaults()
	all, loops := newBuffers(l.Buffers, l.PeerBuffers), &loops{ends: make(map[end]int)}
	return &Flows{limits: l, buffers: [...]*buffers{access: all, control: all, workload: newBuffers(l.Buffers/2, l.PeerBuffers/2)}, drainIdle: drainIdle,
		open: make(map[*flow]struct{}), used: make(map[share]*account),
		arriving: make(map[share]*rate.Limiter), udp: newUDPFlows(l, loops), loops: loops}
}

// Attach sets the tunnel for datagrams, and the gateway's address in it, before there are peers.
func (t *Flows) Attach(tunnel Tunnel, own netip.Addr) { t.udp.tunnel, t.udp.own = tunnel, own }

// maxArriving bounds how many rates are remembered: more than two for each peer and each open
// ticket.
const maxArriving = 4096

// arrives counts a flow that a peer begins against its rate, or reports that it is one too many.
// Unknown senders share a rate.
func (t *Flows) arrives(k share, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.arriving[k]
	if l == nil {
		if len(t.arriving) >= maxArriving {
			maps.DeleteFunc(t.arriving, func(_ share, l *rate.Limiter) bool { return l.TokensAt(now) >= float64(l.Burst()) })
		}
		b := t.limits.tcp(k.class)
		if k.udp {
			b = t.limits.udp()
		}
		l = rate.NewLimiter(rate.Limit(b.rate), b.burst)
		t.arriving[k] = l
	}
	return l.AllowN(now, 1)
}

// limitsNow returns the current limits.
func (t *Flows) limitsNow() Limits {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limits
}

// SetPeerRate replaces Limits.PeerRate; 0 takes the default.
func (t *Flows) SetPeerRate(perSecond int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if perSecond == 0 {
		perSecond = api.DefaultConnectionsPerSecond
	}
	t.limits.PeerRate = perSecond
	for k, l := range t.arriving {
		if !k.udp {
			l.SetLimit(rate.Limit(t.limits.tcp(k.class).rate))
		}
	}
}

// begin admits a connection that is about to be opened. The caller ends it with end. A non-empty
// reason says why it was not admitted.
func (t *Flows) begin(direction, peer, service, remote string) (*flow, Reason) {
	return t.enter(shareOf(direction, peer, service), netip.Addr{}, direction, peer, service, remote)
}

// enter is begin for a connection that is counted in a share, and as one of a client's, if that has
// an address.
func (t *Flows) enter(k share, client netip.Addr, direction, peer, service, remote string) (*flow, Reason) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flow{table: t, direction: direction, peer: peer, service: service, remote: remote,
		startedAt: time.Now(), ctx: ctx, cancel: cancel, halfOpen: true, tally: t.uses.tally(direction, peer, service)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopping {
		cancel()
		return nil, Stopping
	}
	if r := t.takeLocked(f, k, client); r != "" {
		cancel()
		return nil, r
	}
	t.open[f] = struct{}{}
	t.wg.Add(1)
	return f, ""
}

// admitted counts a connection of a client that was not known as any other from now on. If there is no
// place, nothing changes.
func (t *Flows) admitted(f *flow) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := f.share
	if was.class != unadmitted {
		return ""
	}
	if r := t.takeLocked(f, shareOf(f.direction, f.peer, f.service), was.client); r != "" {
		return r
	}
	t.countLocked(was, netip.Addr{}, -1, -1)
	return ""
}

// takeLocked takes a place of a share for a half-open flow of a client.
func (t *Flows) takeLocked(f *flow, k share, client netip.Addr) Reason {
	a := t.used[k]
	if a == nil {
		a = &account{}
	}
	total := t.opened[k.class]
	if k.class == access || k.class == control {
		total = t.opened[access] + t.opened[control]
	}
	if r := t.limits.tcp(k.class).admit(a, client, total); r != "" {
		return r
	}
	f.share, f.client = k, client
	t.used[k] = a
	t.countLocked(k, client, 1, 1)
	return ""
}

// countLocked adds flows of a client to a share.
func (t *Flows) countLocked(k share, client netip.Addr, flows, halfOpen int) {
	a := t.used[k]
	a.count(client, flows, halfOpen)
	t.opened[k.class] += flows
	if a.usage == (usage{}) {
		delete(t.used, k)
	}
}

// established moves a flow from half-open to open.
func (t *Flows) established(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.halfOpen {
		f.halfOpen = false
		f.tally.opened()
		t.countLocked(f.share, f.client, 0, -1)
	}
}

// end removes a flow from the table. Its connections must be closed.
func (t *Flows) end(f *flow) {
	f.cancel()
	t.loops.remove(f.outside)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, f)
	if f.halfOpen {
		t.countLocked(f.share, f.client, -1, -1)
	} else {
		t.countLocked(f.share, f.client, -1, 0)
		f.tally.closed()
		f.tally.carried(f.rx.Load(), f.tx.Load())
	}
	t.wg.Done()
}

// List returns the established flows of one peer, oldest first, and of its flows of datagrams the
// most recently used ones.
func (t *Flows) List(peer string) []api.Flow {
	out := []api.Flow{}
	for _, f := range t.matching(func(f *flow) bool { return f.peer == peer && !f.halfOpen }) {
		out = append(out, f.snapshot())
	}
	out = append(out, t.udp.list(peer)...)
	slices.SortFunc(out, func(a, b api.Flow) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Remote, b.Remote))
	})
	return out
}

// Carried is how much the established flows of a peer have carried, in bytes in both directions,
// and their number.
type Carried struct {
	Flows int
	Bytes uint64
}

// Carried returns this for all peers with flows, by name.
func (t *Flows) Carried() map[string]Carried {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.udp.carried()
	for f := range t.open {
		if f.halfOpen {
			continue
		}
		c := out[f.peer]
		c.Flows++
		c.Bytes += f.rx.Load() + f.tx.Load()
		out[f.peer] = c
	}
	return out
}

// Count returns how many connections are open or being opened, by direction.
func (t *Flows) Count() map[string]int {
	n := map[string]int{DirectionInbound: 0, DirectionOutbound: 0}
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.open {
		n[f.direction]++
	}
	return n
}

// ClosePeer resets every flow of a peer, in both directions, including those being opened, and
// returns their number. The caller must first have removed the peer from its configuration, or new
// ones may follow.
func (t *Flows) ClosePeer(peer string) int {
	return t.endMatching(func(a about) bool { return a.peer == peer })
}

// endMatching resets connections, ends flows of datagrams, and returns their number.
func (t *Flows) endMatching(match func(about) bool) int {
	n := t.udp.endMatching(match)
	for _, f := range t.matching(func(*flow) bool { return true }) {
		if match(f.about()) {
			f.abort()
			n++
		}
	}
	return n
}

// Drain admits no more flows and waits until the open ones have ended. Idle ones are reset after 3
// to 6 s, because watches and connections kept for later would not end by themselves. When ctx
// ends, all that are left are reset. On return no goroutine of a flow is left. The error says that
// flows were cut short: it is that of ctx or an [ErrIdle]. Nobody knows when a flow of datagrams is
// done, so these end with the last connection.
func (t *Flows) Drain(ctx context.Context) error {
	t.mu.Lock()
	t.stopping = true
	t.mu.Unlock()
	t.udp.stop()
	defer t.udp.close()

	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	tick := time.NewTicker(t.drainIdle)
	defer tick.Stop()
	idle, moved := 0, map[*flow]uint64{}
	t.abortIdle(moved) // notes where they stand
	for {
		select {
		case <-done:
			if idle > 0 {
				return fmt.Errorf("%d connections: %w", idle, ErrIdle)
			}
			return nil
		case <-tick.C:
			idle += t.abortIdle(moved)
		case <-ctx.Done():
			n := t.abortMatching(func(*flow) bool { return true })
			<-done
			if n+idle == 0 {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}

// abortIdle resets the flows that have carried nothing since moved was filled, fills it again, and
// returns their number.
func (t *Flows) abortIdle(moved map[*flow]uint64) int {
	return t.abortMatching(func(f *flow) bool {
		before, seen := moved[f]
		moved[f] = f.rx.Load() + f.tx.Load()
		return seen && moved[f] == before
	})
}

func (t *Flows) abortMatching(match func(*flow) bool) int {
	flows := t.matching(match)
	for _, f := range flows {
		f.abort()
	}
	return len(flows)
}

// matching returns the flows that match; it calls match under the lock.
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
