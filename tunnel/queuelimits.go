package tunnel

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/tunnel/underlay"
)

// WireGuard bounds its queues by batches, a thousand for each peer and direction, and each packet
// in them has a buffer of 64 KiB. Whenever one stage is slower than the one before it, the queues
// grow to gigabytes, and later packets wait behind them. So few packets are let in at a time, as
// Linux limits the queue of a network card (byte queue limits, LWN 454390). The others wait in the
// network stack, where connections take turns, and in the socket's buffer, where a packet takes 2
// KiB.
//
// WireGuard does not report what became of a packet, but it returns its buffer, or hands the packet
// out in it. So while a packet is inside, its buffer carries a mark behind the packet. Packets of a
// session come out in order, so all packets before one that came out are out as well, or were
// dropped.

const (
	// maxOut and maxIn are how many packets may be inside before no more are let in: four batches
	// out, so that no stage waits for another, and twice as many in, since the socket drops what it
	// has no room for. On small machines the limit is insideFraction of the process' memory limit,
	// but at least minInside.
	maxOut         = 256
	maxIn          = 512
	minInside      = 64
	insideFraction = 16
	// stalledAfter is how long a lane may let nothing out before it counts as stalled, because
	// there is no session or the packets were forged. A stalled lane's packets hold back nothing
	// else.
	stalledAfter = 100 * time.Millisecond
	// deadAfter is when a stalled lane begins to drop new packets beyond maxStalled. Those few
	// stay, since a session begins with them. All stalled lanes together hold at most stalledFactor
	// times the limit of moving ones.
	deadAfter     = time.Second
	maxStalled    = 64
	stalledFactor = 4
	// tryEvery is how often a full stalled lane still lets a packet in: another of its sessions
	// may be fine, and packets counted as inside may have been lost unnoticed.
	tryEvery = 20 * time.Millisecond
	// idleWait is how long to wait while nothing comes out: WireGuard returns the buffers of
	// dropped packets only when it is given more.
	idleWait = 10 * time.Millisecond

	lanes = 64
	// sealed is what a packet has around it while it is inside: header, padding and tag.
	sealed = device.MessageTransportHeaderSize + 16 + 16
)

// A mark sits where no packet can be: behind the largest packet that fits the MTU, in a page that
// the packet touches anyway, or at the end of the buffer for larger packets. It begins with
// magic, which nobody can guess, so nobody can send one.
const markSize = 12

var magic = rand.Uint32()

// inside counts what is inside WireGuard in one direction. It is safe for concurrent use.
type inside struct {
	began     time.Time   // start of all times
	direction byte        // which marks belong to this direction
	near      int         // offset of marks in the buffer, or of its end
	far       atomic.Bool // some marks were at the end
	limit     int
	lanes     [lanes]lane
	dropped   atomic.Uint64 // packets for stalled lanes

	waiting atomic.Int32
	mu      sync.Mutex
	left    sync.Cond
	closed  bool
}

// lane counts the packets to one peer, or of one session, or of several with the same hash.
type lane struct {
	in, out atomic.Uint32 // how many went in, and the number of the last that came out
	moved   atomic.Int64  // when one last came out, or went into the empty lane, in now's time
	tried   atomic.Int64  // when one was last let in that would have been refused
}

// newInside is for packets of up to mtu bytes, and larger ones.
func newInside(way byte, most int64, mtu int) *inside {
	fits := debug.SetMemoryLimit(-1) / insideFraction / device.MaxMessageSize
	w := &inside{began: time.Now(), direction: way, limit: int(min(max(fits, minInside), most)), near: min(mtu+sealed, device.MaxMessageSize-markSize)}
	w.left.L = &w.mu
	return w
}

// enter marks a packet that is about to go in, size bytes from the start of the buffer.
func (w *inside) enter(buf []byte, size int, of uint32, now int64) {
	at := w.near
	if size > at {
		if at = device.MaxMessageSize - markSize; size+sealed > at || cap(buf) < device.MaxMessageSize {
			return // no path carries such packets
		}
		w.far.Store(true)
	}
	l := &w.lanes[of%lanes]
	if l.inside() == 0 {
		l.moved.Store(now)
	}
	m := buf[at : at+markSize]
	binary.NativeEndian.PutUint32(m, magic)
	m[4], m[5] = w.direction, byte(of%lanes)
	binary.NativeEndian.PutUint32(m[8:], l.in.Add(1))
}

// cameOut records packets that came out. Others may be among them.
func (w *inside) cameOut(bufs [][]byte) { w.leave(bufs, w.now()) }

// returned records buffers that WireGuard returns: their packets were dropped.
func (w *inside) returned(bufs [][]byte) { w.leave(bufs, 0) }

// leave is cameOut if now is set, and returned if it is 0.
func (w *inside) leave(bufs [][]byte, now int64) {
	left, far := false, w.far.Load()
	for _, b := range bufs {
		if cap(b) < device.MaxMessageSize {
			continue // a handshake message
		}
		b = b[:device.MaxMessageSize]
		left = w.unmark(b[w.near:], now) || far && w.unmark(b[device.MaxMessageSize-markSize:], now) || left
	}
	if left && w.waiting.Load() > 0 {
		w.mu.Lock()
		w.left.Broadcast()
		w.mu.Unlock()
	}
}

// unmark removes the mark at the start of b, if there is one.
func (w *inside) unmark(b []byte, now int64) bool {
	if binary.NativeEndian.Uint32(b) != magic || b[4] != w.direction {
		return false
	}
	clear(b[:4])
	l, n := &w.lanes[b[5]], binary.NativeEndian.Uint32(b[8:])
	for before := l.out.Load(); int32(n-before) > 0 && !l.out.CompareAndSwap(before, n); before = l.out.Load() {
	}
	if now != 0 {
		l.moved.Store(now)
	}
	return true
}

func (w *inside) now() int64 { return int64(time.Since(w.began)) }

func (l *lane) inside() int { return int(int32(l.in.Load() - l.out.Load())) }

func (l *lane) stalled(now int64) bool {
	return time.Duration(now-l.moved.Load()) >= stalledAfter
}

// count returns how many packets are in moving lanes, and in stalled ones.
func (w *inside) count() (moving, stalled int) {
	now := w.now()
	for i := range w.lanes {
		l := &w.lanes[i]
		n := l.inside()
		switch {
		case n <= 0:
		case l.stalled(now):
			stalled += n
		default:
			moving += n
		}
	}
	return moving, stalled
}

func (w *inside) moving() int {
	n, _ := w.count()
	return n
}

// refuses reports whether to drop a packet because its lane is stalled and full.
func (w *inside) refuses(of uint32, now int64) bool {
	l := &w.lanes[of%lanes]
	n := l.inside()
	if n == 0 || !l.stalled(now) {
		return false
	}
	if n < maxStalled || time.Duration(now-l.moved.Load()) < deadAfter {
		if _, stalled := w.count(); stalled < stalledFactor*w.limit {
			return false
		}
	}
	if time.Duration(now-l.tried.Load()) >= tryEvery {
		l.tried.Store(now)
		return false
	}
	w.dropped.Add(1)
	return true
}

// wait waits until more may go in, or nothing has come out for idleWait.
func (w *inside) wait() {
	if w.moving() < w.limit {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	over := false
	still := time.AfterFunc(idleWait, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.left.Broadcast()
	})
	defer still.Stop()
	for !w.closed && !over && w.moving() >= w.limit {
		w.left.Wait()
		still.Reset(idleWait)
	}
}

// close stops waits from blocking, until it is opened again.
func (w *inside) close(closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = closed
	w.left.Broadcast()
}

// boundary holds what WireGuard sees of the world, a device and a bind, and counts what is inside.
//
// WireGuard's two goroutines for a peer keep the slices of their last batches. The array is reused,
// and what it points to stays reachable until a batch of that size overwrites it. A thousand peers
// that were busy for a moment held 150 MB for good. So both lists are cleared after use.
type boundary struct{ outbound, inbound *inside }

// newBoundary is for a device of an MTU.
func newBoundary(mtu int) boundary {
	return boundary{newInside(1, maxOut, mtu), newInside(2, maxIn, mtu)}
}

// returned records the buffers that WireGuard returns.
func (b boundary) returned(bufs [][]byte) {
	b.outbound.returned(bufs)
	b.inbound.returned(bufs)
}

// DroppedUnsent returns how many packets were dropped because their peer has no session and enough
// others already wait for one.
func (e *Engine) DroppedUnsent() uint64 { return e.boundary.outbound.dropped.Load() }

// boundedDevice is the tun.Device that WireGuard sees.
type boundedDevice struct {
	tun.Device
	boundary
	used  int // of the buffers of the last Read
	owner func(netip.Addr) netip.Addr
	// hashes caches the hashes of owners, by the hash of their address. Which lane a packet is in
	// does not matter, so an outdated one does no harm.
	hashes [lanes]struct {
		of   netip.Addr
		hash uint32
	}
}

// Read implements tun.Device. Only one goroutine calls it.
func (d *boundedDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	d.returned(bufs[:min(d.used, len(bufs))]) // the others are those of the last call
	d.outbound.wait()
	n, err := d.Device.Read(bufs, sizes, offset)
	d.used = n
	now := d.outbound.now()
	for i := range n {
		to := d.towards(bufs[i][offset : offset+sizes[i]])
		if d.outbound.refuses(to, now) {
			sizes[i] = 0 // WireGuard skips it
			continue
		}
		d.outbound.enter(bufs[i], offset+sizes[i], to, now)
	}
	return n, err
}

// Write implements tun.Device. WireGuard keeps track of the buffers elsewhere.
func (d *boundedDevice) Write(bufs [][]byte, offset int) (int, error) {
	n, err := d.Device.Write(bufs, offset)
	d.inbound.cameOut(bufs)
	clear(bufs)
	return n, err
}

// Close implements tun.Device.
func (d *boundedDevice) Close() error {
	d.outbound.close(true)
	return d.Device.Close()
}

// towards hashes the peer that a packet goes to.
func (d *boundedDevice) towards(packet []byte) uint32 {
	to := destination(packet)
	known := &d.hashes[hashOf(to)%lanes]
	if known.of != to {
		known.of, known.hash = to, hashOf(d.owner(to))
	}
	return known.hash
}

// destination returns a packet's destination; invalid if it has none.
func destination(packet []byte) netip.Addr {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[16:20]))
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[24:40]))
	}
	return netip.Addr{}
}

func hashOf(a netip.Addr) uint32 {
	b := a.As16()
	return spread(binary.NativeEndian.Uint32(b[12:]))
}

// spread mixes a number and returns its upper bits in the lower ones.
func spread(n uint32) uint32 { return n * 0x9e3779b1 >> 16 }

// boundedBind is the conn.Bind that WireGuard sees.
type boundedBind struct {
	*underlay.Bind
	boundary
	// blank is as long as any packet.
	blank []byte
}

func newBoundedBind(b *underlay.Bind, w boundary) boundedBind {
	return boundedBind{b, w, make([]byte, device.MaxMessageSize)}
}

// Open implements conn.Bind.
func (b boundedBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, port, err := b.Bind.Open(port)
	if err != nil {
		return nil, 0, err
	}
	b.inbound.close(false)
	for i, receive := range fns {
		fns[i] = b.bounded(receive)
	}
	return fns, port, nil
}

// bounded wraps a ReceiveFunc, which one goroutine calls.
func (b boundedBind) bounded(receive conn.ReceiveFunc) conn.ReceiveFunc {
	used := 0
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		b.returned(packets[:min(used, len(packets))])
		b.inbound.wait()
		n, err := receive(packets, sizes, eps)
		used = n
		now := b.inbound.now()
		for i := range n {
			if p := packets[i][:sizes[i]]; len(p) > device.MessageKeepaliveSize && p[0] == device.MessageTransportType {
				b.inbound.enter(packets[i], len(p), spread(binary.NativeEndian.Uint32(p[device.MessageTransportOffsetReceiver:])), now)
			}
		}
		return n, err
	}
}

// Close implements conn.Bind.
func (b boundedBind) Close() error {
	b.inbound.close(true)
	return b.Bind.Close()
}

// Send implements conn.Bind. WireGuard reads the packets' lengths afterwards.
func (b boundedBind) Send(bufs [][]byte, to conn.Endpoint) error {
	err := b.Bind.Send(bufs, to)
	b.outbound.cameOut(bufs)
	for i, packet := range bufs {
		bufs[i] = b.blank[:len(packet)]
	}
	return err
}
