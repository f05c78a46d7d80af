package netstack

import (
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// initialBuffer is a connection's initial buffer in each direction, in bytes. It holds the
	// first flights of a slow start (RFC 6928: 10 segments) with room to spare; it grows from there
	// while the connection is read and acknowledged.
	initialBuffer = 128 << 10
	// leastSend and leastReceive are the minimum, for connections opened when memory is short.
	// gVisor announces half of the receive buffer as the window: 9 packets.
	leastSend, leastReceive = 8 << 10, 24 << 10
	// openPart is the fraction of its peer's room that a connection may take when it opens, so that
	// many leave room for the next: with 64 MB for the process they start with the minimum, and two
	// hundred fit. A connection that needs more grows.
	openPart = 512
	// shortPart is the fraction of its peer's room below which a connection's first buffers must
	// be, or else memory is short and idle connections give some back.
	shortPart = 64
	// growPart is the fraction of a peer's maximum up to which its connections may grow; the rest
	// is for opening others.
	growPart = 2
	// idleAfter is how long a connection must have written nothing before it gives memory back.
	idleAfter = time.Second
	// reclaimEvery is the least time between two searches for memory to take back.
	reclaimEvery = 50 * time.Millisecond
)

const (
	// shortPathBuffer bounds each buffer of a connection on a short path, in bytes: a window of 1
	// MB. More would only queue in the tunnel: with 2 MB a stream is no faster, and packets beside
	// it wait half as long again. Half a MB costs a third of the throughput (bench/README).
	shortPathBuffer = 2 << 20
	// windowRate is the rate that a window is to allow on a longer path, in bytes per second: 1.2
	// Gbit/s. If gVisor controls what is in flight, a larger window only makes a bottleneck's queue
	// overflow. flowRate is for connections whose data is sent below gVisor, which need another
	// window while gaps are filled.
	windowRate, flowRate = 150e6, 300e6
	// shortPathPart is the fraction of all memory that bounds such a buffer. Each packet in flight
	// has a buffer of 64 KB in WireGuard, which the garbage collector counts whole: with a limit of
	// 64 MB and windows of 2 MB it ran a hundred times a second, and emptied WireGuard's pools each
	// time. With half a megabyte it does not.
	shortPathPart = 16
	// buffersPerWindow is how much larger the buffers are: gVisor announces half of the
	// receive buffer, and wakes a writer when half of the send buffer is free.
	buffersPerWindow = 2
	// gapWindows is how many of package sender's windows a send buffer holds. The window is twice what
	// fills the path, and a segment that is lost twice delays the rest by two more.
	gapWindows = 2
)

// memory accounts for all connections' buffers. gVisor bounds only individual buffers and grows
// them by itself; here each growth is requested, and undone if it is not granted.
//
// A peer may have as much as is left for all others (the dynamic threshold of Choudhury
// and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998). Alone it
// gets a half; two that want as much as possible get a third each. So there is always something
// left for a later one, without a fixed division.
type memory struct {
	total         int64                       // immutable
	owner         func(netip.Addr) netip.Addr // immutable
	send, receive int                         // initial buffers; immutable
	// Upper bounds of a connection's buffers on any path; immutable.
	mostSend, mostReceive int
	shortPath             int // the same on a short path; immutable

	mu        sync.Mutex
	used      int64
	byPeer    map[netip.Addr]int64
	shares    map[*share]struct{}
	reclaimed time.Time // the last search for memory to take back
	lingering lingering
}

func newMemory(o Options) *memory {
	return &memory{
		total:   o.TCPMemory,
		owner:   o.Owner,
		send:    min(initialBuffer, o.TCPSendBuffer),
		receive: min(initialBuffer, o.TCPReceiveBuffer),
		byPeer:  make(map[netip.Addr]int64),
		shares:  make(map[*share]struct{}),

		lingering: newLingering(o),

		mostSend: o.TCPSendBuffer, mostReceive: o.TCPReceiveBuffer,
		shortPath: int(min(shortPathBuffer, max(o.TCPMemory/shortPathPart, minTCPBuffer))),
	}
}

// most returns how far the buffers of a connection with a round-trip time (0 if unknown) may grow,
// in bytes. rate is what its window is to allow.
func (m *memory) most(rtt time.Duration, rate float64) (send, receive int) {
	if rtt == 0 {
		return m.mostSend, m.mostReceive
	}
	needed := max(m.shortPath, int(buffersPerWindow*rate*rtt.Seconds()))
	return min(m.mostSend, needed), min(m.mostReceive, needed)
}

// roomLocked returns how much more a peer may take, in bytes.
func (m *memory) roomLocked(peer netip.Addr) int64 {
	return max((m.total-m.used-m.byPeer[peer])/2, 0)
}

// moveLocked books n more bytes for a peer, or less if n is negative.
func (m *memory) moveLocked(peer netip.Addr, n int) {
	m.used += int64(n)
	if m.byPeer[peer] += int64(n); m.byPeer[peer] == 0 {
		delete(m.byPeer, peer)
	}
}

// open books a new connection's buffers. It fails with ENOBUFS if the peer's share has no room for
// another one.
func (m *memory) open(remote netip.Addr) (*share, error) {
	peer := m.owner(remote)
	if m.room(peer)/shortPart < int64(m.send+m.receive) {
		m.reclaim()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	room := m.roomLocked(peer)
	if room < leastSend+leastReceive {
		return nil, syscall.ENOBUFS
	}
	each := int(min(room/openPart/2, initialBuffer))
	s := &share{memory: m, peer: peer, send: max(min(each, m.send), leastSend), receive: max(min(each, m.receive), leastReceive)}
	s.wanted = m.receive
	s.written.Store(time.Now().UnixNano())
	m.moveLocked(peer, s.send+s.receive)
	m.shares[s] = struct{}{}
	return s, nil
}

func (m *memory) room(peer netip.Addr) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roomLocked(peer)
}

// grow raises one of a share's buffers towards want, as far as there is room, and returns its size.
func (m *memory) grow(s *share, buffer *int, want int) int {
	m.mu.Lock()
	short := m.growthLocked(s.peer) < int64(want-*buffer)
	m.mu.Unlock()
	if short {
		m.reclaim()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := int(min(m.growthLocked(s.peer), int64(want-*buffer))); n > 0 && *buffer > 0 {
		m.moveLocked(s.peer, n)
		*buffer += n
	}
	return *buffer
}

// growthLocked returns how much more a peer's open connections may take, in bytes.
func (m *memory) growthLocked(peer netip.Addr) int64 {
	used := m.byPeer[peer]
	return (used+m.roomLocked(peer))/growPart - used
}

// shrink lowers the booking of a send buffer, unless it has changed meanwhile.
func (m *memory) shrink(s *share, was, to int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.send != was || to >= was {
		return
	}
	s.send = to
	m.moveLocked(s.peer, to-was)
	m.forgetLocked(s)
}

// release gives a buffer back for good.
func (m *memory) release(s *share, buffer *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moveLocked(s.peer, -*buffer)
	*buffer = 0
	m.forgetLocked(s)
}

// forgetLocked drops a share that has nothing left.
func (m *memory) forgetLocked(s *share) {
	if s.send == 0 && s.receive == 0 {
		delete(m.shares, s)
	}
}

// reclaim takes back the send buffers that idle connections do not use and closed ones no longer
// need. Receive buffers stay. gVisor drops whatever arrives while a buffer holds more than its
// size, and does not say what it holds behind a gap. If the segment that would fill the gap is
// always dropped, the connection hangs.
//
// Calls into gVisor are made without the lock, since gVisor calls release with its own lock held.
func (m *memory) reclaim() {
	m.mu.Lock()
	now := time.Now()
	if now.Sub(m.reclaimed) < reclaimEvery {
		m.mu.Unlock()
		return
	}
	m.reclaimed = now
	held := make(map[*share]int, len(m.shares))
	for s := range m.shares {
		if s.ep != nil {
			held[s] = s.send
		}
	}
	m.mu.Unlock()
	for s, send := range held {
		m.shrink(s, send, s.needed(send, now))
	}
}

// usage returns what is booked, in bytes.
func (m *memory) usage() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
