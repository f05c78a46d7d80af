package forward

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
)

const (
	// sweepEvery is how often to look for flows that have ended.
	sweepEvery = time.Second
	// firstPort is the lowest port to use (RFC 6056 §3.2).
	firstPort = 1024
)

var errNoPort = errors.New("no port is free for another flow to it")

// Tunnel carries datagrams inside the tunnel, like *netstack.Stack. Its methods never block.
type Tunnel interface {
	SendUDP(from, to netip.AddrPort, payload []byte) error
	// RefuseUDP notifies remote that nobody accepts what it sent to local.
	RefuseUDP(local, remote netip.AddrPort)
}

// udpKey identifies a flow inside the tunnel. The gateway has only one address there.
type udpKey struct {
	remote netip.AddrPort
	port   uint16 // ours
}

// udpFlows is the table of flows of datagrams. No lock is held over I/O, and no datagram is waited
// for or blocks: those without room are dropped and counted.
type udpFlows struct {
	bounds      bounds
	mostInbound int // the maximum number of inbound flows
	sockets     sockets
	tunnel      Tunnel     // since Flows.Attach
	own         netip.Addr // in the tunnel
	dropped     map[Dropped]*atomic.Uint64
	ctx         context.Context // of those that are being opened
	cancel      context.CancelFunc
	openers     sync.WaitGroup
	loops       *loops

	mu          sync.Mutex
	stopping    bool
	flows       map[udpKey]*udpFlow // those that have a key
	names       lookups
	owners      map[share]*udpOwner
	total       [unadmitted + 1]int // flows, by class: access or unadmitted
	openInbound int                 // flows
	sweeper     *time.Timer         // nil while there are none
}

func newUDPFlows(l Limits, loops *loops) *udpFlows {
	t := &udpFlows{bounds: l.udp(), mostInbound: l.InboundUDPFlows, loops: loops, dropped: map[Dropped]*atomic.Uint64{TooLarge: {}, NoRoom: {}},
		flows: make(map[udpKey]*udpFlow), owners: make(map[share]*udpOwner)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// duplicate: there is a flow with that key.
const duplicate Reason = "duplicate"

// begin admits a flow that is counted in a share, and opens it on its own goroutine. A flow that
// comes through the tunnel has a key.
func (t *udpFlows) begin(f *udpFlow, k share, open func()) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopping:
		return Stopping
	case t.flows[f.key] != nil:
		return duplicate
	}
	o, r := t.ownerLocked(f, k)
	if r != "" {
		return r
	}
	f.table, f.startedAt = t, time.Now()
	f.used = f.startedAt
	t.takeLocked(f, o)
	if f.key.port != 0 {
		t.flows[f.key] = f
	}
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(sweepEvery, t.sweep)
	}
	t.openers.Go(open)
	return ""
}

// admitted counts a flow of a client that was not known as any other from now on. If there is no place,
// nothing changes.
func (t *udpFlows) admitted(f *udpFlow) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.phase == ended:
		return Stopping
	case f.owner.class != unadmitted:
		return ""
	}
	o, r := t.ownerLocked(f, shareOfUDP(f.owner.direction, f.owner.peer))
	if r != "" {
		return r
	}
	t.leaveLocked(f)
	t.takeLocked(f, o)
	return ""
}

func shareOfUDP(direction, peer string) share {
	return share{direction: direction, peer: peer, udp: true}
}

// boundsOf returns the current bounds of a share.
func (t *udpFlows) boundsOf(k share) bounds {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, _ := t.boundsLocked(k)
	return b
}

// boundsLocked returns the bounds of a share, and how many flows there are of those that their total
// counts: all of the class, or the inbound ones if fewer of these are left.
func (t *udpFlows) boundsLocked(k share) (b bounds, total int) {
	b, total = t.bounds, t.total[k.class]
	switch {
	case k.class == unadmitted:
		b = unadmittedBounds
	case k.direction == DirectionInbound:
		b.peer = min(b.peer, (t.mostInbound+1)/2)
		if t.mostInbound-t.openInbound < b.total-total {
			b.total, b.limit, total = t.mostInbound, catalogue.FailureFiles, t.openInbound
		}
	}
	return b, total
}

// ownerLocked returns the owner of a share if it may have a flow, too.
func (t *udpFlows) ownerLocked(f *udpFlow, k share) (*udpOwner, Reason) {
	o := t.owners[k]
	if o == nil {
		o = &udpOwner{share: k}
	}
	b, total := t.boundsLocked(k)
	return o, b.admit(&o.account, o.clientOf(f), total)
}

// takeLocked counts a half-open flow as one of its owner's.
func (t *udpFlows) takeLocked(f *udpFlow, o *udpOwner) {
	t.owners[o.share] = o
	o.count(o.clientOf(f), 1, 1)
	o.bytes += f.rx + f.tx
	o.waiting += f.waitingBytes()
	t.total[o.class]++
	if o.direction == DirectionInbound {
		t.openInbound++
	}
	o.lists[f.phase].push(f)
	f.owner = o
}

// leaveLocked is the opposite, for any flow.
func (t *udpFlows) leaveLocked(f *udpFlow) {
	o := f.owner
	o.lists[f.phase].remove(f)
	halfOpen := 0
	if f.phase == opening {
		halfOpen = -1
	}
	o.count(o.clientOf(f), -1, halfOpen)
	o.waiting -= f.waitingBytes()
	if o.flows == 0 {
		delete(t.owners, o.share)
	}
	t.total[o.class]--
	if o.direction == DirectionInbound {
		t.openInbound--
	}
}

// place assigns an outbound flow one of our ports towards its destination.
func (t *udpFlows) place(f *udpFlow, to netip.AddrPort) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.phase == ended {
		return net.ErrClosed
	}
	const ports = 1<<16 - firstPort
	start := rand.IntN(ports)
	for i := range ports { // RFC 6056 §3.3.1: there are more than a peer may have flows
		k := udpKey{to, uint16(firstPort + (start+i)%ports)}
		if t.flows[k] == nil {
			f.key, t.flows[k] = k, f
			return nil
		}
	}
	return errNoPort
}

// opened sends the datagrams that waited. Those that arrive at the same moment may overtake them,
// as datagrams may. It reports whether the flow is still wanted; if not, it closes the side.
func (t *udpFlows) opened(f *udpFlow, side udpSide) bool {
	t.mu.Lock()
	if f.phase == ended {
		t.mu.Unlock()
		side.close()
		return false
	}
	if f.in != nil { // An outbound flow had it from the beginning.
		f.side = side
	}
	waiting := f.takeWaiting()
	f.owner.count(f.owner.clientOf(f), 0, -1)
	f.owner.lists[opening].remove(f)
	f.phase = asked
	f.owner.lists[asked].push(f)
	f.tally.opened()
	t.mu.Unlock()
	for _, b := range waiting {
		f.forward(side, b)
	}
	return true
}

// takes records that a datagram came from the peer, or from the other side, and returns whether to
// pass it on now.
func (t *udpFlows) takes(f *udpFlow, fromPeer bool, b []byte) (udpSide, bool) {
	began := (f.in != nil) == fromPeer
	next := f.phase
	switch {
	case f.phase == ended:
		return nil, false
	case f.phase == opening && began:
		size := f.waitingBytes() + len(b)
		if len(f.waiting) == maxWaiting || size > maxWaitingBytes && len(f.waiting) > 0 || f.owner.waiting+len(b) > f.owner.maxWaiting() {
			t.dropped[NoRoom].Add(1)
			return nil, false
		}
		f.waiting = append(f.waiting, slices.Clone(b))
		f.owner.waiting += len(b)
	case f.phase == asked && !began:
		next = answered
	case f.phase == answered && began:
		next = talking
	}
	lists := &f.owner.lists
	lists[f.phase].remove(f)
	lists[next].push(f)
	f.phase, f.used = next, time.Now()
	f.owner.bytes += uint64(len(b))
	if fromPeer {
		f.rx += uint64(len(b))
		f.tally.carried(uint64(len(b)), 0)
	} else {
		f.tx += uint64(len(b))
		f.tally.carried(0, uint64(len(b)))
	}
	return f.side, next != opening || !began
}

// fromPeer handles a datagram that came through the tunnel, if it belongs to a flow.
func (t *udpFlows) fromPeer(k udpKey, b []byte) bool {
	t.mu.Lock()
	f := t.flows[k]
	if f == nil {
		t.mu.Unlock()
		return false
	}
	side, now := t.takes(f, true, b)
	t.mu.Unlock()
	if c, local := side.(*udpClient); local {
		c.local().carried(nil)
	}
	if now {
		f.outcome(side.send(b))
	}
	return true
}

// PeerRefused ends the flow after a peer reported that nobody accepts what was sent from the
// gateway's local address. What the other side sends afterwards is rejected by its own system.
func (t *Flows) PeerRefused(remote, local netip.AddrPort) {
	t.udp.mu.Lock()
	f := t.udp.flows[udpKey{remote, local.Port()}]
	unanswered := f != nil && f.phase < answered
	t.udp.mu.Unlock()
	if f == nil || !f.end() {
		return
	}
	if f.in == nil && unanswered {
		f.side.(*udpClient).lost(syscall.ECONNREFUSED)
	}
}

func (t *udpFlows) endLocked(f *udpFlow) {
	t.loops.remove(f.outside)
	t.leaveLocked(f)
	if f.phase != opening {
		f.tally.closed()
	}
	if f.key.port != 0 {
		t.flows = without(t.flows, f.key)
	}
	f.waiting, f.phase = nil, ended
}

// without deletes from a map. A map keeps the memory of its largest size, so an empty one is
// replaced.
func without[K comparable, V any](m map[K]V, k K) map[K]V {
	if delete(m, k); len(m) == 0 {
		return make(map[K]V)
	}
	return m
}

// sweep runs while there are flows.
func (t *udpFlows) sweep() {
	t.endIdle(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.owners) == 0 || t.stopping {
		t.sweeper = nil
	} else {
		t.sweeper.Reset(sweepEvery)
	}
}

// endIdle ends the flows that have been idle for too long.
func (t *udpFlows) endIdle(now time.Time) {
	t.endAll(func(o *udpOwner) (out []*udpFlow) {
		for p := range o.lists {
			idle := idleAsked
			if phase(p) == talking {
				idle = idleTalking
			}
			for f := o.lists[p].first; f != nil && now.Sub(f.used) >= idle; f = f.next {
				out = append(out, f)
			}
		}
		return out
	})
}

// endAll ends the flows that pick returns for each owner. It calls pick under the lock.
func (t *udpFlows) endAll(pick func(*udpOwner) []*udpFlow) {
	type end struct {
		f    *udpFlow
		side udpSide
		was  phase
	}
	var ends []end
	t.mu.Lock()
	for _, o := range t.owners {
		for _, f := range pick(o) {
			ends = append(ends, end{f, f.side, f.phase})
			t.endLocked(f)
		}
	}
	t.mu.Unlock()
	for _, e := range ends {
		e.f.closed(e.side, e.was)
	}
}

// endMatching ends flows and returns their number. It calls match without the lock.
func (t *udpFlows) endMatching(match func(about) bool) int {
	var all []*udpFlow
	t.mu.Lock()
	for _, o := range t.owners {
		all = append(all, o.all()...)
	}
	t.mu.Unlock()
	n := 0
	for _, f := range all {
		if match(f.about()) && f.end() {
			n++
		}
	}
	return n
}

// stop admits no more flows.
func (t *udpFlows) stop() {
	t.mu.Lock()
	t.stopping = true
	t.mu.Unlock()
}

// close ends all flows, and waits for those that were being opened.
func (t *udpFlows) close() {
	t.stop()
	t.cancel()
	t.endAll((*udpOwner).all)
	t.openers.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sweeper != nil {
		t.sweeper.Stop()
	}
}
