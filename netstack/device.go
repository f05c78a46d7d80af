package netstack

import (
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// batchSize is the maximum number of packets per Read or Write. WireGuard uses the larger of this
// and its bind's. 64 beat 128 with the Linux bind (README).
const batchSize = 64

// device is the stack's network card as WireGuard sees it. Reads come from one goroutine at a time,
// writes from any number.
type device struct {
	link    *link
	addrs   map[netip.Addr]struct{} // own addresses; immutable
	owner   func(netip.Addr) netip.Addr
	report  func(src, dst netip.Addr)
	refused func(remote, local netip.AddrPort) // may be nil
	recent  misdirectedLog
	joiners sync.Pool // of *joiner
	events  chan tun.Event
	close   func() // starts closing the stack
	paths   pathMTUs
	windows windowFloor // immutable
	flows   *flows

	// Owned by the reading goroutine, under readMu.
	readMu  sync.Mutex
	pending []*stack.PacketBuffer // taken from the queue, not cut yet
	views   [][]byte              // of the packet being cut
	cut     segmenter             // the packet being cut: pending[0], unless done
	cutting bool
	pathMTU int // of the packet being cut; 0 means the card's MTU

	receivedPackets, receivedBytes, joinedPackets atomic.Uint64
	sentPackets, sentBytes                        atomic.Uint64
}

var _ tun.Device = (*device)(nil)

func newDevice(l *link, o Options) *device {
	d := &device{
		link: l, windows: newWindowFloor(o), addrs: make(map[netip.Addr]struct{}, len(o.Addresses)), owner: o.Owner,
		report: o.OnMisdirected, refused: o.OnUDPRefused, events: make(chan tun.Event, 1),
	}
	for _, a := range o.Addresses {
		d.addrs[a] = struct{}{}
	}
	d.paths.card, d.paths.unmeasured = o.MTU, o.Unmeasured
	d.flows = newFlows(d.windows, o.Owner, o.MTU, d.paths.of, l.out.wake)
	d.joiners.New = func() any { return &joiner{emit: l.deliver} }
	d.events <- tun.EventUp
	return d
}

// Read fills bufs with outbound packets at offset, and sizes with their lengths. It waits only for
// the first one. Once the stack is closed and its last packets have been read, it returns
// os.ErrClosed.
func (d *device) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	d.readMu.Lock()
	defer d.readMu.Unlock()
	n := 0
	for n == 0 { // again if nothing that was taken could be cut, or nothing was due
		if len(d.pending) < 2 { // otherwise pending would grow beyond the queue's bound
			known := len(d.pending)
			taken, open := d.link.out.take(d.pending, len(bufs)-known, d.flows.wait())
			if !open {
				return 0, os.ErrClosed
			}
			d.pending = taken[:known+len(d.flows.take(taken[known:]))]
		}
		// Paced and unpaced packets keep each other out of no more than half a batch. The unpaced
		// go first: their sequence numbers cover what has been sent so far.
		room := len(bufs)
		if d.flows.due() {
			room = max(room/2, 1)
		}
		n = d.cutInto(bufs[:room], sizes, offset)
		n += d.flows.send(bufs[n:], sizes[n:], offset)
		if n > 0 && n < len(bufs) && room < len(bufs) {
			n += d.cutInto(bufs[n:], sizes[n:], offset)
		}
	}
	sent := 0
	for _, size := range sizes[:n] {
		sent += size
	}
	d.sentPackets.Add(uint64(n))
	d.sentBytes.Add(uint64(sent))
	return n, nil
}

// cutInto fills bufs from pending.
func (d *device) cutInto(bufs [][]byte, sizes []int, offset int) (n int) {
	for n < len(bufs) && d.advance() {
		size, err := d.cut.next(bufs[n][offset:])
		if err != nil {
			d.link.drops.add(DropUnsegmented)
			d.finish()
			continue
		}
		if d.cut.whole {
			packet := bufs[n][offset : offset+size]
			d.windows.closesWhole(packet)
			if d.pathMTU > 0 {
				clampMSS(packet, d.pathMTU)
			}
		}
		sizes[n] = size
		n++
		if d.cut.done() {
			d.finish()
			if d.nextWaits(len(bufs)-n, len(bufs)) {
				break
			}
		}
	}
	return n
}

// nextWaits reports whether to leave the next packet for a new batch, because it fits a whole batch
// but not the rest of this one: its halves would cost a system call each.
func (d *device) nextWaits(free, batch int) bool {
	if len(d.pending) == 0 {
		return false
	}
	n := packetsOf(d.pending[0], d.paths.towards(d.pending[0]))
	return free < n && n <= batch
}

// packetsOf returns the number of packets that pkt is cut into on a path with an MTU, 0 meaning the
// network card's.
func packetsOf(pkt *stack.PacketBuffer, mtu int) int {
	payload := pkt.Data().Size()
	mss := int(pkt.GSOOptions.MSS)
	if pkt.GSOOptions.Type == stack.GSONone || mss == 0 {
		return 1
	}
	if mtu > 0 {
		mss = max(min(mss, mtu-(pkt.Size()-payload)), 1)
	}
	return max(1, (payload+mss-1)/mss)
}

// advance makes sure that a packet is being cut; it returns false if there is none.
func (d *device) advance() bool {
	for !d.cutting {
		if len(d.pending) == 0 {
			return false
		}
		pkt := d.pending[0]
		d.cutting = true
		d.views = appendViews(d.views[:0], pkt)
		d.pathMTU = d.paths.towards(pkt)
		if err := d.cut.reset(d.views, pkt.GSOOptions, d.pathMTU); err != nil {
			d.link.drops.add(DropUnsegmented)
			d.finish()
		} else if !d.cut.whole {
			d.windows.closes(d.cut.tcp())
		}
	}
	return true
}

// finish releases the packet that was being cut.
func (d *device) finish() {
	d.pending[0].DecRef()
	d.pending[0] = nil
	d.pending = d.pending[1:]
	if len(d.pending) == 0 {
		d.pending = nil
	}
	clear(d.views)
	d.cut.views = nil
	d.cutting = false
}

// appendViews appends the memory of pkt, headers first. It neither copies nor takes a reference.
func appendViews(dst [][]byte, pkt *stack.PacketBuffer) [][]byte {
	list, skip := pkt.AsViewList()
	for v := list.Front(); v != nil; v = v.Next() {
		b := v.AsSlice()
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		dst = append(dst, b[skip:])
		skip = 0
	}
	return dst
}

// Write takes inbound packets from WireGuard, each at offset in its buffer. It never blocks, and
// drops and counts bad packets. The error is always nil, because one bad packet must not cost the
// rest of the batch.
func (d *device) Write(bufs [][]byte, offset int) (int, error) {
	j := d.joiners.Get().(*joiner)
	received := 0
	for _, b := range bufs {
		packet := b[offset:]
		received += len(packet)
		if d.accepts(packet) {
			j.batch = append(j.batch, packet)
		}
	}
	wake := d.flows.count.Load() > 0 && d.flows.receive(j.batch)
	for _, packet := range j.batch {
		j.add(packet)
	}
	j.flush()
	if wake {
		d.link.out.wake()
	}
	d.receivedPackets.Add(uint64(len(bufs)))
	d.receivedBytes.Add(uint64(received))
	d.joinedPackets.Add(uint64(j.joined))
	j.reset()
	d.joiners.Put(j)
	return len(bufs), nil
}

// accepts reports whether packet is addressed to us; if not, it counts it.
func (d *device) accepts(packet []byte) bool {
	var src, dst netip.Addr
	switch {
	case len(packet) >= ipv6HeaderLen && packet[0]>>4 == 6:
		dst = netip.AddrFrom16([16]byte(packet[ipv6Dst : ipv6Dst+16]))
		src = netip.AddrFrom16([16]byte(packet[ipv6Src : ipv6Src+16]))
	case len(packet) >= ipv4HeaderLen && packet[0]>>4 == 4:
		dst = netip.AddrFrom4([4]byte(packet[ipv4Dst : ipv4Dst+4]))
		src = netip.AddrFrom4([4]byte(packet[ipv4Src : ipv4Src+4]))
	default:
		d.link.drops.add(DropMalformed)
		return false
	}
	if _, own := d.addrs[dst]; own {
		if forgedError(packet, src) {
			d.link.drops.add(DropForgedError)
			return false
		}
		if d.refused != nil {
			if remote, local, ok := refusedDatagram(packet, src); ok {
				d.refused(remote, local)
			}
		}
		if smallMSS(packet) {
			d.link.drops.add(DropSmallMSS)
			return false
		}
		if mtu := d.paths.of(src); mtu > 0 {
			clampMSS(packet, mtu)
		}
		return true
	}
	if dst.IsMulticast() || dst == limitedBroadcast {
		d.link.drops.add(DropMulticast)
		return false
	}
	d.link.drops.add(DropMisdirected)
	if d.report != nil && d.recent.first(d.owner(src), time.Now()) {
		d.report(src, dst)
	}
	return false
}

// limitedBroadcast is defined by RFC 919 §7.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// File implements tun.Device; there is none.
func (*device) File() *os.File { return nil }

// MTU implements tun.Device.
func (d *device) MTU() (int, error) { return int(d.link.mtu), nil }

// Name implements tun.Device.
func (*device) Name() (string, error) { return "postern", nil }

// Events implements tun.Device: up once, closed with the device.
func (d *device) Events() <-chan tun.Event { return d.events }

// BatchSize implements tun.Device.
func (*device) BatchSize() int { return batchSize }

// Close starts closing the whole stack, which is useless without its only card. It does not wait
// for the stack's goroutines: WireGuard closes its device with locks held, which an OnTCP call may
// be about to take. [Stack.Close] waits.
func (d *device) Close() error {
	d.close()
	return nil
}

// misdirectedLog limits reports of misdirected packets to one per peer per second.
type misdirectedLog struct {
	mu   sync.Mutex
	seen map[netip.Addr]time.Time
}

const (
	misdirectedEvery = time.Second
	// misdirectedMax bounds the memory. Reports beyond it are skipped.
	misdirectedMax = 1024
)

// first reports whether a peer was not seen in the second before now.
func (m *misdirectedLog) first(owner netip.Addr, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.seen[owner]; ok && now.Sub(at) < misdirectedEvery {
		return false
	}
	if len(m.seen) >= misdirectedMax {
		for a, at := range m.seen {
			if now.Sub(at) >= misdirectedEvery {
				delete(m.seen, a)
			}
		}
		if len(m.seen) >= misdirectedMax {
			return false
		}
	}
	if m.seen == nil {
		m.seen = make(map[netip.Addr]time.Time)
	}
	m.seen[owner] = now
	return true
}
