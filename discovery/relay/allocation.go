package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// sendQueue and sendQueueBytes bound the queue to the socket: 512 full tunnel datagrams are 750
	// KB, 60 ms at 100 Mbit/s.
	sendQueue      = 512
	sendQueueBytes = 1 << 20
	// maxRun is how many datagrams the socket gets at once: as many as WireGuard sends at a time,
	// and underlay.Bind.WriteRun accepts, which splits them as the kernel requires.
	maxRun = 128
	// queueWait is how long WireGuard's data waits for room in the queue, as it does for room in
	// the socket on a direct path: a stream that is faster than the server fills the queue, and a
	// loss would cost it more. After that nothing waits until the queue has moved.
	queueWait = 5 * time.Millisecond
	// wireGuardData is the first byte of WireGuard's transport data.
	wireGuardData = 4
	// goodbye bounds deallocation. Over UDP a lost request counts against the user's quota for up
	// to 10 minutes, so it is worth waiting for the answer.
	goodbye = time.Second
)

// allocation is a relayed address that the server gave us, and everything that runs for it.
type allocation struct {
	Allocation
	link     *link
	conn     net.PacketConn // the library's; nil = it did not make the allocation
	channels *channels
	server   Server
	lifetime time.Duration
	fallback string // why it is not over UDP; "" = it is, or need not be
	traffic  *counters
	report   func(*allocation, observed) // how the minder reports its findings

	deliver func(packet []byte, from netip.AddrPort) // Options.Attach's
	// detach removes what delivers to us: the registrations of Options.Attach and Socket.AddServer,
	// and a stream.
	detach []func()

	queue  chan outgoing
	queued atomic.Int64                                   // bytes in it, and on their way out of it
	stuck  atomic.Bool                                    // a wait for room was in vain
	states atomic.Pointer[map[netip.Addr]permissionState] // consulted by send and receive
	gone   atomic.Bool
	// delivering is held shared during deliveries.
	delivering sync.RWMutex

	mu     sync.Mutex // guards the following, and changes of states
	wanted []netip.Addr
	held   held

	// sending is held while sending, so that nothing overtakes the queue; room and frames are for
	// what bypasses it.
	sending sync.Mutex
	room    []byte
	frames  [][]byte

	check  wake.Signal  // requests a verification because of a suspicion
	ask    wake.Signal  // requests one on demand
	permit wake.Signal  // the wanted addresses have changed
	broken <-chan error // of the stream, for Run; nil over UDP

	ctx  context.Context
	stop context.CancelFunc
	lost context.Context // ends when the allocation turns out useless; the cause is a *failure
	lose context.CancelCauseFunc
	wg   sync.WaitGroup
}

// outgoing is a datagram in the queue.
type outgoing struct {
	b  *[]byte // with room for a channel header in front
	to netip.AddrPort
}

// observed is what maintaining an allocation found out.
type observed struct {
	rtt time.Duration // 0 = not measured
	// refreshed is how long the allocation is valid from now on; 0 = unknown.
	refreshed time.Duration
	// silence describes a server that has twice not answered; nil = none.
	silence *failure
	asked   bool // denied is set
	denied  map[netip.Addr]string
}

// counters are [Traffic] while counting.
type counters struct {
	sent, received, queueDrops, permissionDrops, unsent, malformed atomic.Uint64
}

func (c *counters) snapshot() Traffic {
	return Traffic{
		Sent: c.sent.Load(), Received: c.received.Load(), QueueDrops: c.queueDrops.Load(),
		PermissionDrops: c.permissionDrops.Load(), Unsent: c.unsent.Load(), Malformed: c.malformed.Load(),
	}
}

// buffers are for outgoing datagrams.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// start starts the allocation's goroutines.
func (a *allocation) start() {
	a.wg.Go(a.sendQueued)
	a.wg.Go(a.bindChannels)
	a.wg.Go(a.maintain)
}

// want replaces the wanted addresses. It takes effect for send at once, before the server has been
// asked for anything: whoever learns of the allocation or wants an address may send immediately.
func (a *allocation) want(addrs []netip.Addr) {
	a.mu.Lock()
	a.wanted = addrs
	a.restateLocked(*a.states.Load())
	a.mu.Unlock()
	a.permit.Set()
}

// wants returns the last list passed to want.
func (a *allocation) wants() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wanted
}

// restate applies the server's answers, which may lag behind want.
func (a *allocation) restate(known map[netip.Addr]permissionState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restateLocked(known)
}

func (a *allocation) restateLocked(known map[netip.Addr]permissionState) {
	states := initialStates(a.Relayed.Addr(), a.wanted)
	for addr := range states {
		if s, ok := known[addr]; ok {
			states[addr] = s
		}
	}
	a.states.Store(&states)
	send, dropped := a.held.answered(states, time.Now())
	a.traffic.permissionDrops.Add(uint64(dropped))
	for _, d := range send {
		a.put(d.packet, d.to)
	}
}

// send sends or queues datagrams; see Options.Attach.
func (a *allocation) send(packets [][]byte, to netip.AddrPort) error {
	if a.gone.Load() {
		return ErrClosed
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	switch (*a.states.Load())[to.Addr()] {
	case granted:
		for len(packets) > 0 {
			n := min(len(packets), maxRun)
			if !a.sendNow(packets[:n], to) {
				break
			}
			packets = packets[n:]
		}
	case asked:
		var answered [][]byte
		for _, p := range packets {
			if a.hold(p, to) {
				answered = append(answered, p)
			}
		}
		packets = answered
	case denied:
		a.traffic.permissionDrops.Add(uint64(len(packets)))
		return ErrDenied
	default:
		a.traffic.permissionDrops.Add(uint64(len(packets)))
		return ErrNotPermitted
	}
	for _, p := range packets {
		a.put(p, to)
	}
	return nil
}

// sendNow sends datagrams past the queue; it returns false if the queue is not empty, or if there
// is a stream to fill. Passing each packet from one goroutine to another, in its own buffer, takes
// 3 % of the cost of a relayed stream.
func (a *allocation) sendNow(packets [][]byte, to netip.AddrPort) bool {
	if a.link.writeRun == nil || a.queued.Load() > 0 || !a.sending.TryLock() {
		return false
	}
	defer a.sending.Unlock()
	if a.queued.Load() > 0 || a.gone.Load() {
		return false
	}
	size := 0
	for _, p := range packets {
		size += channelHeader + len(p)
	}
	b := slices.Grow(a.room[:0], size)
	frames := a.frames[:0]
	for _, p := range packets {
		from := len(b)
		b = append(append(b, 0, 0, 0, 0), p...)
		frames = append(frames, a.channels.frame(b[from:len(b):len(b)], to, false))
	}
	a.pass(frames)
	a.room, a.frames = b, frames
	return true
}

// pass sends frames to the server. The caller holds sending.
func (a *allocation) pass(frames [][]byte) {
	unsent := a.link.send(frames)
	a.traffic.unsent.Add(uint64(unsent))
	a.traffic.sent.Add(uint64(len(frames) - unsent))
}

// hold keeps a datagram until the server has answered, unless that has just happened.
func (a *allocation) hold(packet []byte, to netip.AddrPort) (answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (*a.states.Load())[to.Addr()] != asked {
		return true // whatever the answer: the server drops what it denies
	}
	if a.held.add(packet, to, time.Now()) {
		a.traffic.permissionDrops.Add(1)
	}
	return false
}

// put queues a datagram, or drops it.
func (a *allocation) put(packet []byte, to netip.AddrPort) {
	size := int64(channelHeader + len(packet))
	if a.queued.Add(size) > sendQueueBytes {
		a.queued.Add(-size)
		a.traffic.queueDrops.Add(1)
		return
	}
	b := buffers.Get().(*[]byte)
	*b = append(append((*b)[:0], 0, 0, 0, 0), packet...)
	if !a.enqueue(outgoing{b, to}, packet) {
		a.queued.Add(-size)
		buffers.Put(b)
		a.traffic.queueDrops.Add(1)
	}
}

// enqueue queues a datagram; it returns false if there is no room, even after a while.
func (a *allocation) enqueue(out outgoing, packet []byte) bool {
	select {
	case a.queue <- out:
		return true
	default:
	}
	if len(packet) == 0 || packet[0] != wireGuardData || a.stuck.Load() {
		return false
	}
	room := time.NewTimer(queueWait)
	defer room.Stop()
	select {
	case a.queue <- out:
		return true
	case <-room.C:
		a.stuck.Store(true)
	case <-a.ctx.Done():
	}
	return false
}

// sendQueued sends from the queue, as much at a time as there is. One goroutine keeps the order.
func (a *allocation) sendQueued() {
	run := make([]outgoing, 0, maxRun)
	frames := make([][]byte, 0, maxRun)
	for {
		select {
		case out := <-a.queue:
			run = append(run[:0], out)
		case <-a.ctx.Done():
			return
		}
		for more := true; more && len(run) < maxRun; {
			select {
			case out := <-a.queue:
				run = append(run, out)
			default:
				more = false
			}
		}
		frames = frames[:0]
		size := 0
		for _, out := range run {
			size += len(*out.b)
			frames = append(frames, a.channels.frame(*out.b, out.to, a.Transport != TransportUDP))
		}
		a.sending.Lock()
		a.pass(frames)
		a.queued.Add(-int64(size)) // what comes now is behind it
		a.sending.Unlock()
		a.stuck.Store(false)
		for _, out := range run {
			buffers.Put(out.b)
		}
	}
}

// receive delivers a datagram that the server has passed on from a wanted address. It does not
// block, and keeps nothing.
func (a *allocation) receive(payload []byte, from netip.AddrPort) {
	a.delivering.RLock()
	defer a.delivering.RUnlock()
	if a.gone.Load() {
		return
	}
	if (*a.states.Load())[from.Addr()] == unwanted {
		a.traffic.permissionDrops.Add(1) // a withdrawn permission lasts 5 minutes at the server
		return
	}
	a.traffic.received.Add(1)
	a.deliver(payload, from)
}

// onIndication handles a Data indication.
func (a *allocation) onIndication(payload []byte, from netip.AddrPort) {
	if (*a.states.Load())[from.Addr()] != unwanted {
		a.channels.heard(from)
	}
	a.receive(payload, from)
}

// onChannel handles ChannelData.
func (a *allocation) onChannel(number uint16, payload []byte) {
	if from, ok := a.channels.source(number); ok {
		a.receive(payload, from)
	}
}

// close ends everything and waits. With giveBack it deallocates at the server, too.
func (a *allocation) close(giveBack bool) {
	a.delivering.Lock() // nothing is delivered from here on
	a.gone.Store(true)
	a.delivering.Unlock()
	a.stop()
	if giveBack {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		a.link.end(ctx)
		cancel()
	}
	a.sending.Lock() // nothing is sent from here on
	a.link.shut()
	a.sending.Unlock()
	if a.conn != nil {
		// The library's Close sends its own deallocation, which the shut link rejects.
		_ = a.conn.Close()
	}
	a.link.lib.Close() // ends the transactions that its goroutines wait for
	a.wg.Wait()
	for _, f := range a.detach {
		f()
	}
}

// silence describes a server that does not answer.
func (a *allocation) silence() *failure {
	_, _, sendErr := a.link.learnt()
	return &failure{words: explainSilence(a.Transport, a.link.server, sendErr), silent: true}
}

// failed converts the result of an exchange with the server to a failure; nil = it succeeded, or
// was cut short because the allocation is being closed.
func (a *allocation) failed(m message, err error) error {
	if errors.Is(err, errNoAnswer) {
		return a.silence()
	}
	if err == nil && m.class != classSuccess {
		return &failure{words: explainLoss(m, a.Transport, a.server, time.Now()), code: m.code}
	}
	return nil
}
