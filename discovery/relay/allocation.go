package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sendQueue bounds the datagrams that wait for the library, which blocks for a round
	// trip when an address is first sent to. 512 full datagrams are 750 KB: at
	// 100 Mbit/s, 60 ms.
	sendQueue = 512
	// maxDatagram is the largest payload of UDP.
	maxDatagram = 1<<16 - 1
	// maxAddrs bounds the cache of converted addresses.
	maxAddrs = 1024
	// goodbye bounds giving an allocation back. Over UDP a lost farewell costs the user's
	// quota for up to 10 minutes, so it is worth waiting for its answer.
	goodbye = time.Second
)

// allocation is a relayed address that the server gave us, with all that runs for it.
type allocation struct {
	Allocation
	link     *link
	conn     net.PacketConn // the library's
	server   Server
	lifetime time.Duration
	fallback string // why it is not over UDP; "" = it is, or was not to be
	traffic  *counters
	report   func(*allocation, observed) // how the minder tells of its findings

	deliver func(packet []byte, from netip.AddrPort) // Options.Attach's
	// detach ends what delivers to us: Options.Attach's and Socket.AddServer's removals,
	// and a stream.
	detach []func()

	queue  chan outgoing
	states atomic.Pointer[map[netip.Addr]permissionState] // what send and receive go by
	gone   atomic.Bool

	mu     sync.Mutex // guards what follows, and changes of states
	wanted []netip.Addr

	check  chan struct{} // a verification is asked for
	permit chan struct{} // the wanted addresses have changed
	broken <-chan error  // of the stream, for Run; nil over UDP

	ctx  context.Context
	stop context.CancelFunc
	lost context.Context // ends when the allocation turns out useless; the cause is a *failure
	lose context.CancelCauseFunc
	wg   sync.WaitGroup
}

// outgoing is a datagram in the queue.
type outgoing struct {
	b  *[]byte
	to netip.AddrPort
}

// observed is what minding an allocation found out.
type observed struct {
	rtt    time.Duration // 0 = not measured
	asked  bool          // denied says something
	denied map[netip.Addr]string
}

// counters are [Traffic] while it is counted.
type counters struct {
	sent, received, queueDrops, permissionDrops, unsent, malformed atomic.Uint64
}

func (c *counters) snapshot() Traffic {
	return Traffic{
		Sent: c.sent.Load(), Received: c.received.Load(), QueueDrops: c.queueDrops.Load(),
		PermissionDrops: c.permissionDrops.Load(), Unsent: c.unsent.Load(), Malformed: c.malformed.Load(),
	}
}

// buffers are for datagrams on their way out.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// start sets the allocation to work.
func (a *allocation) start() {
	a.wg.Go(a.sendQueued)
	a.wg.Go(a.receive)
	a.wg.Go(a.mind)
}

// want replaces the wanted addresses. It holds for send at once, before the server has
// been asked for anything: whoever hears of the allocation or wants an address may send
// in the next moment.
func (a *allocation) want(addrs []netip.Addr) {
	a.mu.Lock()
	a.wanted = addrs
	a.restateLocked(*a.states.Load())
	a.mu.Unlock()
	wake(a.permit)
}

// wants is what want was told last.
func (a *allocation) wants() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wanted
}

// restate takes what is known of the server's answers, which may lag behind want.
func (a *allocation) restate(known map[netip.Addr]permissionState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restateLocked(known)
}

func (a *allocation) restateLocked(known map[netip.Addr]permissionState) {
	states := wish(a.Relayed.Addr(), a.wanted)
	for addr := range states {
		if s, ok := known[addr]; ok {
			states[addr] = s
		}
	}
	a.states.Store(&states)
}

// send queues a datagram; see Options.Attach.
func (a *allocation) send(packet []byte, to netip.AddrPort) error {
	if a.gone.Load() {
		return ErrClosed
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	switch (*a.states.Load())[to.Addr()] {
	case granted:
	case asked:
		a.traffic.permissionDrops.Add(1) // As lost as any datagram: the permission is on its way.
		return nil
	case denied:
		a.traffic.permissionDrops.Add(1)
		return ErrDenied
	default:
		a.traffic.permissionDrops.Add(1)
		return ErrNotPermitted
	}
	b := buffers.Get().(*[]byte)
	*b = append((*b)[:0], packet...)
	select {
	case a.queue <- outgoing{b, to}:
	default:
		buffers.Put(b)
		a.traffic.queueDrops.Add(1)
	}
	return nil
}

// sendQueued gives the library what is queued. One goroutine keeps the order.
func (a *allocation) sendQueued() {
	addrs := make(map[netip.AddrPort]*net.UDPAddr)
	for {
		select {
		case out := <-a.queue:
			to := addrs[out.to]
			if to == nil {
				if len(addrs) >= maxAddrs {
					clear(addrs)
				}
				to = net.UDPAddrFromAddrPort(out.to)
				addrs[out.to] = to
			}
			if _, err := a.conn.WriteTo(*out.b, to); err != nil {
				a.traffic.unsent.Add(1)
			} else {
				a.traffic.sent.Add(1)
			}
			buffers.Put(out.b)
		case <-a.ctx.Done():
			return
		}
	}
}

// receive delivers what the library has taken apart, from addresses that are wanted.
func (a *allocation) receive() {
	buf := make([]byte, maxDatagram)
	for {
		n, addr, err := a.conn.ReadFrom(buf)
		if err != nil {
			return // It is closed: the buffer holds any datagram.
		}
		from, ok := addr.(*net.UDPAddr)
		if !ok {
			continue
		}
		source := from.AddrPort()
		source = netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
		if (*a.states.Load())[source.Addr()] == unwanted {
			a.traffic.permissionDrops.Add(1) // A permission that was withdrawn lasts 5 minutes at the server.
			continue
		}
		a.traffic.received.Add(1)
		a.deliver(buf[:n], source)
	}
}

// close ends everything and waits for it. giveBack tells the server, too.
func (a *allocation) close(giveBack bool) {
	a.gone.Store(true)
	a.stop()
	if giveBack {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		a.link.end(ctx)
		cancel()
	}
	a.link.shut()
	// The library's Close sends a farewell of its own, which the shut link refuses.
	_ = a.conn.Close()
	a.link.lib.Close() // Ends the transactions that its goroutines and ours wait for.
	a.wg.Wait()
	for _, f := range a.detach {
		f()
	}
}

// failed makes a failure out of what an exchange with the server came to; nil = it
// succeeded, or was not finished because the allocation is being closed.
func (a *allocation) failed(m message, err error) error {
	if errors.Is(err, errNoAnswer) {
		_, _, sendErr := a.link.learnt()
		return &failure{words: explainSilence(a.Transport, a.link.server, sendErr), silent: true}
	}
	if err == nil && m.class != classSuccess {
		return &failure{words: explainLoss(m, a.Transport, a.server, time.Now()), code: m.code}
	}
	return nil
}
