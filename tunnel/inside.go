package tunnel

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/tunnel/underlay"
)

// WireGuard's queues are bounded by batches, a thousand for each peer and way, and each packet in
// them has a buffer of 64 KiB: whenever one of its stages is slower than the one before, they
// take gigabytes, and whatever comes next waits behind them. So no more goes in while many are
// inside, as Linux bounds what is inside a network card (byte queue limits, LWN 454390): packets
// wait in the network stack, where each connection has its turn, and in the socket's buffer, where
// a packet takes 2 KiB.
//
// WireGuard does not say what became of a packet, but hands in its buffer again or lets it out
// with it: each buffer has a mark behind its packet while that is inside. Packets of a session
// come out in order, so those before one that came out are out as well, or were dropped.

const (
	// mostOut and mostIn are how many packets may be inside before no more are let in: four
	// batches out, so that no stage waits for another, and twice as many in, since what the
	// socket has no room for is lost. On small machines insideFraction of the process' memory
	// limit counts, for leastInside at least.
	mostOut        = 256
	mostIn         = 512
	leastInside    = 64
	insideFraction = 16
	// stalledAfter is when a lane counts as stalled: nothing came out for so long, because there
	// is no session, or what went in was forged. What is in it keeps nothing else out.
	stalledAfter = 100 * time.Millisecond
	// deadAfter is when what goes into a stalled lane is dropped, but for mostStalled packets: a
	// session begins with them. All stalled lanes take atOnce times what moves.
	deadAfter   = time.Second
	mostStalled = 64
	atOnce      = 4
	// tryEvery is how often a packet is let into such a lane all the same: another session of it
	// may be well, and what is counted in it may be gone without a sign.
	tryEvery = 20 * time.Millisecond
	// breath is how long to wait while nothing comes out: WireGuard hands in the buffers of what
	// it dropped only when it is given more.
	breath = 10 * time.Millisecond

	lanes = 64
	// sealed is what a packet has around it while it is inside: the header, padding and the tag.
	sealed = device.MessageTransportHeaderSize + 16 + 16
)

// A mark is where the packet cannot be: behind the largest of our own, in a page that it touches
// as well, or at the end of the buffer for others that are larger. What is said in it begins with
// magic, which nobody can send.
const markSize = 12

var magic = rand.Uint32()

// inside is what is inside WireGuard one way. It is safe for concurrent use.
type inside struct {
	began   time.Time   // what times are counted from
	way     byte        // of the marks
	near    int         // where they are in the buffer, or at its end
	far     atomic.Bool // some were at the end
	most    int
	lanes   [lanes]lane
	dropped atomic.Uint64 // packets for stalled lanes

	waiting atomic.Int32
	mu      sync.Mutex
	left    sync.Cond
	closed  bool
}

// lane is the packets of one session, or of several that hash alike.
type lane struct {
	in, out atomic.Uint32 // how many went in, and the number of the one that came out last
	moved   atomic.Int64  // when one came out last, or went into the empty lane, as now tells
	tried   atomic.Int64  // when one was last let in that would have been refused
}

// newInside is for packets of up to mtu bytes, and larger ones.
func newInside(way byte, most int64, mtu int) *inside {
	fits := debug.SetMemoryLimit(-1) / insideFraction / device.MaxMessageSize
	w := &inside{began: time.Now(), way: way, most: int(min(max(fits, leastInside), most)), near: min(mtu+sealed, device.MaxMessageSize-markSize)}
	w.left.L = &w.mu
	return w
}

// enter marks a packet that is about to go in, size bytes from the buffer's begin on.
func (w *inside) enter(buf []byte, size int, of uint32, now int64) {
	at := w.near
	if size > at {
		if at = device.MaxMessageSize - markSize; size+sealed > at || cap(buf) < device.MaxMessageSize {
			return // Nobody's path takes such packets.
		}
		w.far.Store(true)
	}
	l := &w.lanes[of%lanes]
	if l.inside() == 0 {
		l.moved.Store(now)
	}
	m := buf[at : at+markSize]
	binary.NativeEndian.PutUint32(m, magic)
	m[4], m[5] = w.way, byte(of%lanes)
	binary.NativeEndian.PutUint32(m[8:], l.in.Add(1))
}

// cameOut takes note of packets that came out. Others may be among them.
func (w *inside) cameOut(bufs [][]byte) { w.leave(bufs, w.now()) }

// returned takes note of buffers that WireGuard hands in: packets that were in them were dropped.
func (w *inside) returned(bufs [][]byte) { w.leave(bufs, 0) }

// leave is cameOut at a time, and returned with none.
func (w *inside) leave(bufs [][]byte, now int64) {
	left, far := false, w.far.Load()
	for _, b := range bufs {
		if cap(b) < device.MaxMessageSize {
			continue // a message of a handshake
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

// unmark takes away the mark that b begins with, if that is one.
func (w *inside) unmark(b []byte, now int64) bool {
	if binary.NativeEndian.Uint32(b) != magic || b[4] != w.way {
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

// count is how many packets are in lanes that move, and in those that are stalled.
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

// refuses reports whether a packet is to be dropped, because its lane is stalled and has enough.
func (w *inside) refuses(of uint32, now int64) bool {
	l := &w.lanes[of%lanes]
	n := l.inside()
	if n == 0 || !l.stalled(now) {
		return false
	}
	if n < mostStalled || time.Duration(now-l.moved.Load()) < deadAfter {
		if _, stalled := w.count(); stalled < atOnce*w.most {
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

// wait waits until more may go in, or nothing has come out for a breath.
func (w *inside) wait() {
	if w.moving() < w.most {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	over := false
	still := time.AfterFunc(breath, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.left.Broadcast()
	})
	defer still.Stop()
	for !w.closed && !over && w.moving() >= w.most {
		w.left.Wait()
		still.Reset(breath)
	}
}

// close ends waits, until it is opened.
func (w *inside) close(closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = closed
	w.left.Broadcast()
}

// boundary is what WireGuard is given of the world, a device and a bind, and what is inside.
//
// WireGuard's two goroutines of a peer keep the slices of their last batches: the array is used
// again, and what it points to stays reachable until a batch as large overwrites it, so that a
// thousand peers that were busy for a moment held 150 MB for good. Both lists are therefore
// emptied when they have been used.
type boundary struct{ outbound, inbound *inside }

// newBoundary is for a device of an MTU.
func newBoundary(mtu int) boundary {
	return boundary{newInside(1, mostOut, mtu), newInside(2, mostIn, mtu)}
}

// returned takes note of the buffers that WireGuard hands in.
func (b boundary) returned(bufs [][]byte) {
	b.outbound.returned(bufs)
	b.inbound.returned(bufs)
}

// DroppedUnsent is how many packets were dropped because their peer has no session and more wait
// for one than are needed to begin it.
func (e *Engine) DroppedUnsent() uint64 { return e.boundary.outbound.dropped.Load() }

// boundedDevice is the device for WireGuard.
type boundedDevice struct {
	tun.Device
	boundary
	used int // of the buffers of the last Read
}

// Read implements tun.Device. Only one goroutine calls it.
func (d *boundedDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	d.returned(bufs[:min(d.used, len(bufs))]) // The others are those of the last call.
	d.outbound.wait()
	n, err := d.Device.Read(bufs, sizes, offset)
	d.used = n
	now := d.outbound.now()
	for i := range n {
		to := destination(bufs[i][offset : offset+sizes[i]])
		if d.outbound.refuses(to, now) {
			sizes[i] = 0 // WireGuard passes over it.
			continue
		}
		d.outbound.enter(bufs[i], offset+sizes[i], to, now)
	}
	return n, err
}

// Write implements tun.Device. WireGuard finds the buffers again by other means.
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

// destination hashes where a packet goes to.
func destination(packet []byte) uint32 {
	var last []byte
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		last = packet[16:20]
	case len(packet) >= 40 && packet[0]>>4 == 6:
		last = packet[36:40]
	default:
		return 0
	}
	return spread(binary.NativeEndian.Uint32(last))
}

// spread has the upper bits of a number, which it mixes, in the lower ones.
func spread(n uint32) uint32 { return n * 0x9e3779b1 >> 16 }

// boundedBind is the bind for WireGuard.
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

// bounded is a ReceiveFunc, which one goroutine calls.
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

// Send implements conn.Bind. WireGuard still reads the packets' lengths.
func (b boundedBind) Send(bufs [][]byte, to conn.Endpoint) error {
	err := b.Bind.Send(bufs, to)
	b.outbound.cameOut(bufs)
	for i, packet := range bufs {
		bufs[i] = b.blank[:len(packet)]
	}
	return err
}
