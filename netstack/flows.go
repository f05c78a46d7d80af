package netstack

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/netstack/sender"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// longRTT is the round trip from which package sender sends a connection's data. On shorter
	// paths gVisor's own congestion control fills the link and costs less.
	longRTT = shortRTT
	// keepPath is how long the state of a path is kept without a connection.
	keepPath = 10 * time.Minute
	// mostIdle is the maximum number of such paths: the device looks at each for every batch.
	mostIdle = 64
	// rest is how long the device sends nothing after it has sent all that was due: 18 packets
	// become due in that time at 1 Gbit/s. Without a rest, a packet becomes due as fast as the one
	// before it is sent, and each costs a system call, an acknowledgement and several wake-ups: a
	// stream that was limited by the processor had three quarters of its rate. The pacer makes up
	// for it. With 0.5 ms, streams over links with pauses and through limiters carried less (the
	// simulator in package sender).
	rest = 200 * time.Microsecond
	// lastWords is how long the device may take over what an endpoint left behind that ended with
	// unacknowledged data.
	lastWords = time.Second
)

// flows sends the data of connections over long paths with package sender, between gVisor and
// WireGuard. gVisor's congestion control takes every loss for congestion and cannot be replaced. So
// gVisor sees a path that is long and lossless. The data it hands over is kept until the peer has
// acknowledged it, and is sent and retransmitted when a [sender.Path] says so. Selective
// acknowledgements and the real round trip are hidden from gVisor, so that it neither retransmits
// nor reduces its window. To the peer it is plain TCP: nothing is negotiated, and stock peers
// benefit too.
//
// Acknowledgements are not made up. A connection's Write, Close and timeouts keep their meaning,
// gVisor's buffers bound what is held, and gVisor handles the peer's window.
type flows struct {
	began   time.Time
	windows windowFloor
	owner   func(netip.Addr) netip.Addr
	card    int                  // the network card's MTU
	mtu     func(netip.Addr) int // of the path to an address; 0 means the network card's
	wake    func()               // wakes the device

	count  atomic.Int32  // connections; while there are none, everything else costs nothing
	resent atomic.Uint64 // packets

	mu    sync.RWMutex
	byKey map[flowKey]*flow
	peers map[netip.Addr]*peerFlows    // by owner
	list  atomic.Pointer[[]*peerFlows] // of peers, for the device

	// The device is woken for what becomes due before this, as returned by now: 0 is nothing,
	// math.MaxInt64 anything.
	wakeFor atomic.Int64

	// Owned by the device's reading goroutine.
	first int           // whose turn it is
	rests time.Duration // until when the device rests
}

// flowKey identifies a connection by its ends, as inbound packets have them.
type flowKey struct {
	remote, local         [16]byte
	remotePort, localPort uint16
}

// peerFlows is one peer's connections, which share a path and a turn, whichever of its addresses
// they have.
type peerFlows struct {
	owner netip.Addr
	due   atomic.Int64 // when there is something to do, as returned by flows.now; math.MaxInt64 is never
	// How much may be in flight, in bytes.
	window atomic.Int64

	mu     sync.Mutex
	path   *sender.Path
	flows  map[*sender.Flow]*flow
	resets []*flow       // to be reset once their data is sent
	count  int           // connections
	left   time.Duration // when the last one was closed
}

func newFlows(windows windowFloor, owner func(netip.Addr) netip.Addr, card int, mtu func(netip.Addr) int, wake func()) *flows {
	t := &flows{
		began: time.Now(), windows: windows, owner: owner, card: card, mtu: mtu, wake: wake,
		byKey: make(map[flowKey]*flow), peers: make(map[netip.Addr]*peerFlows),
	}
	t.list.Store(new([]*peerFlows))
	return t
}

// now returns the time as package sender counts it.
func (t *flows) now() time.Duration { return time.Since(t.began) }

// open starts to send for a connection on which nothing was sent yet. rtt is its handshake's, mss
// the payload of a full packet, in bytes.
func (t *flows) open(local, remote netip.AddrPort, rtt time.Duration, mss int) *flow {
	now, owner := t.now(), t.owner(remote.Addr())
	t.mu.Lock()
	defer t.mu.Unlock()
	p, known := t.peers[owner]
	if !known {
		p = &peerFlows{owner: owner, path: sender.NewPath(now, rtt, mss), flows: make(map[*sender.Flow]*flow)}
		p.due.Store(math.MaxInt64)
		t.peers[owner] = p
	}
	f := &flow{peer: p, key: keyOf(local, remote), remote: remote.Addr()}
	p.mu.Lock()
	p.count++
	p.mu.Unlock()
	t.byKey[f.key] = f
	if !known {
		t.forgetLocked(now)
	}
	t.count.Add(1) // Last: from now on the device reads the list.
	return f
}

// forgetLocked drops paths without a connection that were not used for keepPath, and the longest
// unused ones beyond mostIdle. It publishes the rest to the device.
func (t *flows) forgetLocked(now time.Duration) {
	type idlePath struct {
		peer *peerFlows
		left time.Duration
	}
	var list []*peerFlows
	var idle []idlePath
	for _, p := range t.peers {
		p.mu.Lock()
		if p.count == 0 {
			idle = append(idle, idlePath{p, p.left})
		} else {
			list = append(list, p)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(idle, func(a, b idlePath) int { return cmp.Compare(b.left, a.left) })
	for i, o := range idle {
		if i >= mostIdle || now-o.left > keepPath {
			delete(t.peers, o.peer.owner)
		} else {
			list = append(list, o.peer)
		}
	}
	t.list.Store(&list)
}

// close records that a flow's endpoint has ended. gVisor reports that more than once, the last time
// after TIME-WAIT, when another connection may have the same ends. What it handed over before may
// still be on its way to the device, and a reset behind it must not overtake it.
func (t *flows) close(f *flow) {
	p := f.peer
	p.mu.Lock()
	again := f.ended
	f.ended = true
	waits := f.sending != nil && f.sending.Unacknowledged() != f.end
	p.mu.Unlock()
	switch {
	case again:
	case waits:
		time.AfterFunc(lastWords, func() { t.forget(f) })
	default:
		t.forget(f)
	}
}

// forget drops a flow.
func (t *flows) forget(f *flow) {
	p := f.peer
	p.mu.Lock()
	if f.gone { // Another goroutine was faster.
		p.mu.Unlock()
		return
	}
	f.gone = true // Others may still hold it.
	f.held.releaseAll()
	if f.reset != nil {
		f.reset.DecRef()
		p.resets = slices.DeleteFunc(p.resets, func(o *flow) bool { return o == f })
	}
	if f.sending != nil {
		p.path.Close(f.sending)
		delete(p.flows, f.sending)
	}
	if p.count--; p.count == 0 {
		p.left = t.now()
	}
	p.scheduleLocked()
	p.mu.Unlock()
	t.wake() // The data that filled the path may be gone.
	t.count.Add(-1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byKey[f.key] == f {
		delete(t.byKey, f.key)
	}
}

// take removes from pkts what flows send, and returns the rest.
func (t *flows) take(pkts []*stack.PacketBuffer) []*stack.PacketBuffer {
	if t.count.Load() == 0 {
		return pkts
	}
	now := t.now()
	others := pkts[:0]
	for _, pkt := range pkts {
		if !t.takeOne(now, pkt) {
			others = append(others, pkt)
		}
	}
	clear(pkts[len(others):])
	return others
}

func (t *flows) takeOne(now time.Duration, pkt *stack.PacketBuffer) bool {
	ip, tcp := pkt.NetworkHeader().Slice(), pkt.TransportHeader().Slice()
	if len(tcp) < tcpHeaderLen {
		return false
	}
	var k flowKey
	switch {
	case len(ip) == ipv6HeaderLen && ip[0]>>4 == 6 && ip[ipv6NextHeader] == protoTCP:
		copy(k.local[:], ip[ipv6Src:])
		copy(k.remote[:], ip[ipv6Dst:])
	case len(ip) == ipv4HeaderLen && ip[0] == 0x45 && ip[ipv4Proto] == protoTCP:
		copy(k.local[:], ip[ipv4Src:ipv4Dst])
		copy(k.remote[:], ip[ipv4Dst:])
	default:
		return false
	}
	k.localPort, k.remotePort = binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	f := t.find(k)
	if f == nil {
		return false
	}
	p := f.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	had := f.sending
	taken := f.take(now, pkt, ip, tcp, t.windows)
	if f.sending != had {
		p.flows[f.sending] = f
		f.fit(t.mtu(f.remote))
	}
	p.scheduleLocked()
	return taken
}

func (t *flows) find(k flowKey) *flow {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[k]
}

// receive handles inbound packets, and reports whether the device has to wake up earlier because of
// them.
func (t *flows) receive(packets [][]byte) (wake bool) {
	now := t.now()
	var last flowKey
	var f *flow // of last, with its peer locked; may be nil
	done := func() {
		if f != nil {
			wake = int64(f.peer.scheduleLocked()) < t.wakeFor.Load() || wake
			f.peer.mu.Unlock()
		}
	}
	for _, packet := range packets {
		tcp, fragmented := tcpOf(packet)
		if fragmented || len(tcp) < tcpHeaderLen {
			continue
		}
		if k := inboundKey(packet, tcp); k != last {
			done()
			last, f = k, t.find(k)
			if f != nil {
				f.peer.mu.Lock()
			}
		}
		if f != nil {
			f.receive(now, tcp)
		}
	}
	done()
	return wake
}

// inboundKey returns the connection of an inbound packet with a TCP header.
func inboundKey(packet, tcp []byte) (k flowKey) {
	if packet[0]>>4 == 6 {
		copy(k.remote[:], packet[ipv6Src:])
		copy(k.local[:], packet[ipv6Dst:])
	} else {
		copy(k.remote[:], packet[ipv4Src:ipv4Dst])
		copy(k.local[:], packet[ipv4Dst:ipv4HeaderLen])
	}
	k.remotePort, k.localPort = binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	return k
}

// wait returns how long the device may wait for packets; negative means forever.
func (t *flows) wait() time.Duration {
	if t.count.Load() == 0 {
		return -1
	}
	t.wakeFor.Store(math.MaxInt64) // Otherwise changes from here on would go unnoticed.
	due := int64(math.MaxInt64)
	for _, p := range *t.list.Load() {
		due = min(due, p.due.Load())
	}
	if due == math.MaxInt64 {
		return -1
	}
	now := t.now()
	if due <= int64(t.rests) {
		due = int64(t.rests)
		t.wakeFor.Store(0)
	} else {
		t.wakeFor.Store(due)
	}
	return max(time.Duration(due)-now, 0)
}

// due reports whether there is something to send.
func (t *flows) due() bool { return t.wait() == 0 }

// send fills bufs with what is due, and sizes with the lengths: at most one train of each peer.
// Peers take turns by trains.
func (t *flows) send(bufs [][]byte, sizes []int, offset int) (n int) {
	if t.count.Load() == 0 {
		return 0
	}
	now := t.now()
	if now < t.rests {
		return 0
	}
	list := *t.list.Load()
	for i := range list {
		p := list[(t.first+i)%len(list)]
		if p.due.Load() > int64(now) {
			continue
		}
		p.mu.Lock()
		resent := p.path.Resent()
		k, done := p.resetLocked(bufs[n:], sizes[n:], offset)
		n += k
		k, writable, more := p.sendLocked(now, t.card, bufs[n:], sizes[n:], offset)
		n += k
		t.resent.Add(p.path.Resent() - resent)
		p.mu.Unlock()
		for _, f := range writable {
			f.wake()
		}
		for _, f := range done {
			t.forget(f)
		}
		if more {
			t.first = (t.first + i + 1) % len(list)
			return n
		}
	}
	if n > 0 {
		t.rests = now + rest
	}
	return n
}

// sendLocked sends what is due, up to the size of a single system call; card is the network card's
// MTU. It returns the flows whose waiting writers can continue, and whether more may be due.
func (p *peerFlows) sendLocked(now time.Duration, card int, bufs [][]byte, sizes []int, offset int) (n int, writable []*flow, more bool) {
	defer p.scheduleLocked()
	for last, room := 0, trainBytes; n < len(bufs) && last <= room; room -= last {
		s, r, ok := p.path.Next(now)
		if !ok {
			return n, writable, false
		}
		f := p.flows[s]
		sizes[n] = f.write(bufs[n][offset:], r)
		last = datagramSize(sizes[n], card)
		n++
		if f.resume > 0 && f.unsent() <= f.resume {
			f.resume = 0
			writable = append(writable, f)
		}
	}
	return n, writable, true
}

// resetLocked sends what the flows to be reset have never sent, and then the resets. Nothing of it
// is retransmitted, so it needs no window and no pacing: gVisor would have sent it. It returns the
// flows that are done.
func (p *peerFlows) resetLocked(bufs [][]byte, sizes []int, offset int) (n int, done []*flow) {
	for _, f := range p.resets {
		for n < len(bufs) && f.last.Before(f.end) {
			r := sender.Range{Start: f.last, End: f.last + sender.Seq(min(f.last.To(f.end), f.packetSize()))}
			f.last = r.End
			sizes[n] = f.write(bufs[n][offset:], r)
			n++
		}
		if n == len(bufs) {
			break
		}
		sizes[n] = 0
		for _, v := range appendViews(nil, f.reset) {
			sizes[n] += copy(bufs[n][offset+sizes[n]:], v)
		}
		n++
		done = append(done, f)
	}
	return n, done
}

// scheduleLocked publishes and returns when there is something to do.
func (p *peerFlows) scheduleLocked() time.Duration {
	at, ok := p.path.Due()
	switch {
	case len(p.resets) > 0:
		at = 0
	case !ok:
		at = math.MaxInt64
	}
	p.due.Store(int64(at))
	p.window.Store(int64(p.path.Window()))
	return at
}

// roundTrip returns the path's latest round trip.
func (p *peerFlows) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path.RTT()
}

// mtuChanged makes the flows to an address have the MTU of its path.
func (t *flows) mtuChanged(remote netip.Addr) {
	t.change(remote, func(p *peerFlows) {
		for _, f := range p.flows {
			if f.remote == remote {
				f.fit(t.mtu(remote))
			}
		}
	})
}

// change calls do to change the state of the path to an address, if it has one.
func (t *flows) change(remote netip.Addr, do func(*peerFlows)) {
	t.look(remote, func(p *peerFlows) {
		do(p)
		p.scheduleLocked()
	})
	t.wake()
}

// look calls do with the path to an address, if it has one.
func (t *flows) look(remote netip.Addr, do func(*peerFlows)) {
	owner := t.owner(remote)
	t.mu.RLock()
	p := t.peers[owner]
	t.mu.RUnlock()
	if p != nil {
		p.mu.Lock()
		do(p)
		p.mu.Unlock()
	}
}

func keyOf(local, remote netip.AddrPort) flowKey {
	k := flowKey{remotePort: remote.Port(), localPort: local.Port()}
	copy(k.remote[:], remote.Addr().AsSlice())
	copy(k.local[:], local.Addr().AsSlice())
	return k
}
