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

	"github.com/postern-dev/postern/control/api"
)

// A UDP flow is what a NAT calls a mapping (RFC 4787 §4): the datagrams between two ends, for as
// long as they go on. How long that is, nobody says; so it is known by what was said.
const (
	// idleAsked ends a flow on which nobody has spoken again after an answer: most are one
	// question and one answer, as those of DNS. REQ-5 of RFC 4787 wants 2 minutes where others
	// could take the mapping's place; here the next question begins a flow again, at the same
	// service.
	idleAsked = 30 * time.Second
	// idleTalking ends one on which the side that began has spoken, was answered, and has spoken
	// again: REQ-5's recommendation.
	idleTalking = 5 * time.Minute
	// sweepEvery is how often flows are looked for that have ended.
	sweepEvery = time.Second
	// maxWaiting bounds what waits for a flow to be opened, in datagrams and in bytes.
	maxWaiting, maxWaitingBytes = 8, 16 << 10
	// maxOwnerWaiting bounds the same of all flows of a peer in a direction, in bytes.
	maxOwnerWaiting = 1 << 20
	// maxListed is how many flows of a peer are listed, in each direction.
	maxListed = 256
	// firstPort is the lowest that is taken (RFC 6056 §3.2).
	firstPort = 1024
)

var errNoPort = errors.New("no port is free for another flow to it")

// Tunnel carries datagrams inside the tunnel, as *netstack.Stack does. Nothing of it waits.
type Tunnel interface {
	SendUDP(from, to netip.AddrPort, payload []byte) error
	// RefuseUDP tells remote that nobody takes what it sent to local.
	RefuseUDP(local, remote netip.AddrPort)
}

// udpKey tells a flow from others inside the tunnel. The gateway's own address is one.
type udpKey struct {
	remote netip.AddrPort
	port   uint16 // ours
}

// phase is how far the conversation of a flow has come.
type phase uint8

const (
	opening  phase = iota // nobody can answer yet
	asked                 // the side that began has spoken
	answered              // the other one has
	talking               // and the first one again
	ended
)

// udpSide is the end of a flow that is not in the tunnel.
type udpSide interface {
	// send never waits.
	send(b []byte) error
	close()
}

// udpFlow is the datagrams between two ends.
type udpFlow struct {
	// Immutable.
	table     *udpFlows
	owner     *udpOwner
	service   string
	upstream  string   // inbound
	in        *Inbound // inbound
	tally     *tally   // nil: not of a use that is counted
	startedAt time.Time

	// Under table.mu.
	key        udpKey // of an outbound one since it is open
	phase      phase
	used       time.Time
	rx, tx     uint64
	prev, next *udpFlow // in one of its owner's lists
	waiting    [][]byte // from the side that began, while opening
	side       udpSide  // of an outbound one from the beginning
}

// udpOwner is whose flows are counted together. It is the table's.
type udpOwner struct {
	share
	usage
	bytes   uint64                // carried, by ended ones too
	waiting int                   // bytes that wait for flows to be opened
	lists   [talking + 1]flowList // by phase
}

// flowList has the flow that was used longest ago first.
type flowList struct{ first, last *udpFlow }

func (l *flowList) push(f *udpFlow) {
	f.prev, f.next = l.last, nil
	if l.last != nil {
		l.last.next = f
	} else {
		l.first = f
	}
	l.last = f
}

func (l *flowList) remove(f *udpFlow) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.last = f.prev
	}
	f.prev, f.next = nil, nil
}

// Dropped says why a datagram was not carried. The values are metric labels.
type Dropped string

// Reasons for not carrying a datagram.
const (
	TooLarge Dropped = "too_large" // for the protocol of the side where it was to go
	NoRoom   Dropped = "no_room"   // where it was to go nobody takes them so fast
)

// udpFlows is the table of them. No lock is held over I/O, and nothing of it waits: what there is
// no room for is dropped, and counted.
type udpFlows struct {
	bounds  bounds
	sockets sockets
	tunnel  Tunnel     // since Flows.Attach
	own     netip.Addr // in the tunnel
	dropped map[Dropped]*atomic.Uint64
	ctx     context.Context // of those that are being opened
	cancel  context.CancelFunc
	openers sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	flows    map[udpKey]*udpFlow // those that have a key
	names    lookups
	owners   map[share]*udpOwner
	total    int
	sweeper  *time.Timer // nil while there are none
}

func newUDPFlows(b bounds) *udpFlows {
	t := &udpFlows{bounds: b, dropped: map[Dropped]*atomic.Uint64{TooLarge: {}, NoRoom: {}},
		flows: make(map[udpKey]*udpFlow), owners: make(map[share]*udpOwner)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// duplicate: there is a flow of that key.
const duplicate Reason = "duplicate"

// begin admits a flow, and has it opened on a goroutine of its own. One that comes through the
// tunnel has a key.
func (t *udpFlows) begin(f *udpFlow, direction, peer string, open func()) Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopping:
		return Stopping
	case t.flows[f.key] != nil:
		return duplicate
	}
	k := share{direction: direction, peer: peer, udp: true}
	o := t.owners[k]
	if o == nil {
		o = &udpOwner{share: k}
	}
	if r := t.bounds.admit(o.usage, t.total); r != "" {
		return r
	}
	t.owners[k] = o
	o.flows++
	o.halfOpen++
	t.total++
	f.table, f.owner, f.startedAt = t, o, time.Now()
	f.used = f.startedAt
	o.lists[f.phase].push(f)
	if f.key.port != 0 {
		t.flows[f.key] = f
	}
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(sweepEvery, t.sweep)
	}
	t.openers.Go(open)
	return ""
}

// place gives an outbound flow a port of ours, towards where it leads.
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

// opened lets go of what waited; what comes at the same moment may overtake it, as datagrams may. It
// reports whether the flow is still wanted: if not, the side is closed.
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
	f.owner.halfOpen--
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

// inbound reports whether the peer began.
func (o *udpOwner) inbound() bool { return o.direction == DirectionInbound }

// forward passes on a datagram of the side that began.
func (f *udpFlow) forward(side udpSide, b []byte) {
	if f.owner.inbound() {
		f.outcome(side.send(b))
	} else {
		f.outcome(f.toPeer(b))
	}
}

func (f *udpFlow) toPeer(b []byte) error {
	return f.table.tunnel.SendUDP(netip.AddrPortFrom(f.table.own, f.key.port), f.key.remote, b)
}

// takes notes that a datagram came from the peer, or from the other side, and whether it is to be
// passed on now.
func (t *udpFlows) takes(f *udpFlow, fromPeer bool, b []byte) (udpSide, bool) {
	began := f.owner.inbound() == fromPeer
	next := f.phase
	switch {
	case f.phase == ended:
		return nil, false
	case f.phase == opening && began:
		size := len(b)
		for _, w := range f.waiting {
			size += len(w)
		}
		if len(f.waiting) == maxWaiting || size > maxWaitingBytes && len(f.waiting) > 0 || f.owner.waiting+len(b) > maxOwnerWaiting {
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

// fromPeer takes a datagram that came through the tunnel, if it is of a flow.
func (t *udpFlows) fromPeer(k udpKey, b []byte) bool {
	t.mu.Lock()
	f := t.flows[k]
	if f == nil {
		t.mu.Unlock()
		return false
	}
	side, now := t.takes(f, true, b)
	t.mu.Unlock()
	if now {
		f.outcome(side.send(b))
	}
	return true
}

// datagram takes one from the side that is not in the tunnel.
func (f *udpFlow) datagram(_ netip.AddrPort, b []byte) {
	f.table.mu.Lock()
	_, now := f.table.takes(f, false, b)
	f.table.mu.Unlock()
	if now {
		f.outcome(f.toPeer(b))
	}
}

// refused ends a flow of which the side that is not in the tunnel wants no more, and tells the
// peer.
func (f *udpFlow) refused(netip.AddrPort) {
	f.table.mu.Lock()
	unanswered := f.phase < answered
	f.table.mu.Unlock()
	if !f.end() {
		return
	}
	if f.key.port != 0 {
		f.table.tunnel.RefuseUDP(netip.AddrPortFrom(f.table.own, f.key.port), f.key.remote)
	}
	if f.in != nil && unanswered {
		f.in.upstreamRefused(f)
	}
}

// outcome counts what was not sent, and ends a flow that nobody wants.
func (f *udpFlow) outcome(err error) {
	switch {
	case err == nil:
	case errors.Is(err, syscall.EMSGSIZE):
		f.table.dropped[TooLarge].Add(1)
	case errors.Is(err, syscall.ECONNREFUSED):
		f.refused(netip.AddrPort{})
	default:
		f.table.dropped[NoRoom].Add(1)
	}
}

// PeerRefused ends the flow of which a peer says that nobody there takes what was sent from the
// gateway's local address: what the other side then sends is refused by its own system.
func (t *Flows) PeerRefused(remote, local netip.AddrPort) {
	t.udp.mu.Lock()
	f := t.udp.flows[udpKey{remote, local.Port()}]
	t.udp.mu.Unlock()
	if f != nil {
		f.end()
	}
}

// end takes a flow out of the table and closes it. Only the first call does anything.
func (f *udpFlow) end() bool {
	t := f.table
	t.mu.Lock()
	first := f.phase != ended
	var was phase
	if first {
		was = f.phase
		t.endLocked(f)
	}
	side := f.side
	t.mu.Unlock()
	if first {
		f.closed(side, was)
	}
	return first
}

func (t *udpFlows) endLocked(f *udpFlow) {
	o := f.owner
	o.lists[f.phase].remove(f)
	if f.phase == opening {
		o.halfOpen--
	} else {
		f.tally.closed()
	}
	if o.flows--; o.flows == 0 {
		delete(t.owners, o.share)
	}
	t.total--
	if f.key.port != 0 {
		delete(t.flows, f.key)
	}
	f.takeWaiting()
	f.phase = ended
}

// takeWaiting gives what waits for the flow to be opened, once.
func (f *udpFlow) takeWaiting() [][]byte {
	waiting := f.waiting
	for _, b := range waiting {
		f.owner.waiting -= len(b)
	}
	f.waiting = nil
	return waiting
}

// closed does of the end what needs no lock.
func (f *udpFlow) closed(side udpSide, was phase) {
	if side != nil {
		side.close()
	}
	if f.in != nil && was != opening {
		f.in.disconnected(f)
	}
}

// sweep runs as long as there are flows.
func (t *udpFlows) sweep() {
	t.endIdle(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total == 0 || t.stopping {
		t.sweeper = nil
	} else {
		t.sweeper.Reset(sweepEvery)
	}
}

// endIdle ends what has been idle for too long.
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

// endAll ends the flows that pick gives of each owner, under the lock.
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

// endMatching ends flows and gives their number. match is called without the lock.
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

func (o *udpOwner) all() []*udpFlow {
	out := make([]*udpFlow, 0, o.flows)
	for _, l := range o.lists {
		for f := l.first; f != nil; f = f.next {
			out = append(out, f)
		}
	}
	return out
}

func (f *udpFlow) about() about {
	return about{f.owner.direction, f.owner.peer, f.service, f.remote(), f.upstream}
}

// remote is who began: the peer's address, or the local client's.
func (f *udpFlow) remote() string {
	if f.in == nil {
		return f.side.(*udpClient).from.String()
	}
	return f.key.remote.String()
}

// list gives the flows of a peer that were used last, in each direction.
func (t *udpFlows) list(peer string) []api.Flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []api.Flow
	for _, direction := range []string{DirectionInbound, DirectionOutbound} {
		o := t.owners[share{direction: direction, peer: peer, udp: true}]
		if o == nil {
			continue
		}
		var last []*udpFlow
		for _, l := range o.lists[asked:] {
			for f, n := l.last, 0; f != nil && n < maxListed; f, n = f.prev, n+1 {
				last = append(last, f)
			}
		}
		slices.SortFunc(last, func(a, b *udpFlow) int { return b.used.Compare(a.used) })
		for _, f := range last[:min(len(last), maxListed)] {
			out = append(out, api.Flow{Direction: direction, Protocol: api.UDP, Service: f.service, Remote: f.remote(),
				RxBytes: f.rx, TxBytes: f.tx, StartedAt: f.startedAt})
		}
	}
	return out
}

// UDPFlows is how many flows of datagrams a peer has.
func (t *Flows) UDPFlows(peer string) int {
	t.udp.mu.Lock()
	defer t.udp.mu.Unlock()
	n := 0
	for k, o := range t.udp.owners {
		if k.peer == peer {
			n += o.flows
		}
	}
	return n
}

// carried is what the flows of each peer have carried.
func (t *udpFlows) carried() map[string]Carried {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]Carried)
	for k, o := range t.owners {
		if n := o.flows - o.halfOpen; n > 0 {
			c := out[k.peer]
			out[k.peer] = Carried{c.Flows + n, c.Bytes + o.bytes}
		}
	}
	return out
}

// UDPCount is how many flows of datagrams there are, by direction.
func (t *Flows) UDPCount() map[string]int {
	n := map[string]int{DirectionInbound: 0, DirectionOutbound: 0}
	t.udp.mu.Lock()
	defer t.udp.mu.Unlock()
	for k, o := range t.udp.owners {
		n[k.direction] += o.flows
	}
	return n
}

// Dropped counts the datagrams that were not carried, since the start.
func (t *Flows) Dropped() map[Dropped]uint64 {
	out := make(map[Dropped]uint64, len(t.udp.dropped))
	for why, n := range t.udp.dropped {
		out[why] = n.Load()
	}
	return out
}

// stop admits no more flows.
func (t *udpFlows) stop() {
	t.mu.Lock()
	t.stopping = true
	t.mu.Unlock()
}

// close ends all, and waits for those that were being opened.
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
