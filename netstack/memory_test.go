package netstack

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"

	"github.com/postern-dev/postern/testenv/patience"
)

func TestMemoryFollowsTheProcessLimit(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct{ limit, want int64 }{
		{math.MaxInt64, 256 * mb}, {64 * mb, 16 * mb}, {1 << 40, 256 * mb}, {1, minTCPMemory}, {0, minTCPMemory},
	} {
		if got := defaultTCPMemory(c.limit); got != c.want {
			t.Errorf("a limit of %d bytes gives %d, want %d", c.limit, got, c.want)
		}
	}
}

// heap returns the size of live objects.
func heap() int64 {
	runtime.GC()
	runtime.GC() // gVisor's pools survive the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A peer whose hundred connections nobody reads gets its share and no more, and another peer's
// stream still runs. IPv4 and IPv6 stand for the two peers.
func TestUnreadConnectionsOfOnePeerLeaveRoomForAnother(t *testing.T) {
	const (
		connections = 100
		memory      = 16 << 20 // that of a pod with 64 MB
	)
	p := newPair(t, Options{TCPMemory: 32 << 20}, Options{TCPMemory: memory}, impairment{})
	before := heap()
	var wg sync.WaitGroup
	var unread []*Conn
	for range connections {
		client, server := p.connect(t, b6)
		unread = append(unread, server)
		for _, c := range []*Conn{client, server} {
			_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
			wg.Go(func() { _, _ = c.Write(make([]byte, 8<<20)) })
		}
	}
	wg.Wait()
	queued := 0
	for _, c := range unread {
		n, err := c.ep.GetSockOptInt(tcpip.ReceiveQueueSizeOption)
		if err != nil {
			t.Fatal(err)
		}
		queued += n
	}
	booked := int64(p.b.Stats().TCPMemory)
	grown := heap() - before
	t.Logf("%d connections: %d KB received and unread, %d KB booked, heap of both sides grew by %d KB", connections, queued>>10, booked>>10, grown>>10)
	if queued < connections*leastReceive/4 {
		t.Errorf("only %d bytes are unread: the test tests nothing", queued)
	}
	if booked > memory/2 || int64(queued) > booked {
		t.Errorf("%d bytes are booked and %d unread, want at most half of %d", booked, queued, memory)
	}
	if limit := int64(memory/2 + 32<<20/2 + connections*(64<<10)); grown > limit {
		t.Errorf("the heap grew by %d bytes, want at most %d: both sides' shares and what connections cost", grown, limit)
	}
	client, server := p.connect(t, b4)
	start := time.Now()
	transfer(t, client, server, transferSize/16, 5)
	t.Logf("another peer moves %d MB in %v", transferSize/16>>20, time.Since(start).Round(time.Millisecond))
	if st := p.b.Stats(); st.Dropped[DropMemory] != 0 {
		t.Errorf("%d connections were refused", st.Dropped[DropMemory])
	}
}

func TestConnectionsBeyondTheMemoryAreRefused(t *testing.T) {
	p, requests := asked(t, Options{TCPMemory: minTCPMemory})
	l, addr := p.listen(t, b6)
	const most = minTCPMemory / (leastSend + leastReceive)
	refused := 0
	go func() { // Accepts until the listener is closed.
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	var open []*Conn
	for range most {
		c, err := p.a.DialTCP(within(t), addr)
		if errors.Is(err, syscall.ECONNRESET) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	eventually(t, "one is refused", func() bool { return p.b.Stats().Dropped[DropMemory] > 0 })
	l.Close()
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) {
			refused++
		}
	}
	if refused == 0 || refused > most*3/4 {
		t.Errorf("%d of %d connections were refused, want those beyond half of the memory", refused, most)
	}
	dial := dialing(within(t), p.a, netip.AddrPortFrom(b6, 6443))
	if _, err := next(t, requests).Accept(context.Background()); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("accepting gives %v, want %v", err, syscall.ENOBUFS)
	}
	if err := <-dial; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the dial ends with %v, want %v", err, syscall.ECONNREFUSED)
	}
	if _, err := p.b.DialTCP(within(t), netip.AddrPortFrom(a6, 1)); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("dialling gives %v, want %v", err, syscall.ENOBUFS)
	}
	if _, err := p.b.DialTCP(within(t), netip.AddrPortFrom(a4, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling another peer gives %v, want %v", err, syscall.ECONNREFUSED)
	}
}

// The watches of a hundred pods, each a connection, through a gateway in a pod with 64 MB,
// of which the Go runtime gets nine tenths.
func TestTwoHundredConnectionsOfOnePeerFitIn64MB(t *testing.T) {
	o, err := Options{Addresses: []netip.Addr{a6}, TCPMemory: defaultTCPMemory(64 << 20 * 9 / 10)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(o)
	for i := range 220 {
		if _, err := m.open(b6); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
	}
	if s, err := m.open(b4); err != nil || s.receive < leastReceive {
		t.Errorf("another peer: got %+v and %v, want a connection", s, err)
	}
}

// Random openings, growths and endings follow the rules: the sum is bounded, nobody gets more than
// what is left for all others, and nothing is lost.
func TestAccountOfMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	o, err := Options{Addresses: []netip.Addr{a6}, TCPMemory: 8 << 20}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(o)
	peers := []netip.Addr{a6, b6, a4, b4}
	var open []*share
	for range 20_000 {
		switch rng.IntN(4) {
		case 0:
			peer := peers[rng.IntN(len(peers))]
			s, err := m.open(peer)
			if err == nil {
				open = append(open, s)
			} else if m.byPeer[peer]+leastSend+leastReceive < m.total-m.used-2*(leastSend+leastReceive) {
				t.Fatalf("refused with %d of %d in use, %d by the peer", m.used, m.total, m.byPeer[peer])
			}
		case 1:
			if len(open) > 0 {
				i := rng.IntN(len(open))
				open[i].close()
				open[i].close() // Harmless.
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
		default:
			if len(open) > 0 {
				s := open[rng.IntN(len(open))]
				buffer := &s.send
				if rng.IntN(2) == 0 {
					buffer = &s.receive
				}
				was, want := *buffer, rng.IntN(DefaultTCPBuffer)
				if got := m.grow(s, buffer, want); got != *buffer || got < was || got > max(was, want) {
					t.Fatalf("growing from %d to %d gives %d", was, want, got)
				}
			}
		}
		var sum int64
		byPeer := make(map[netip.Addr]int64)
		for _, s := range open {
			sum += int64(s.send + s.receive)
			byPeer[s.peer] += int64(s.send + s.receive)
		}
		if m.used != sum || sum > m.total || len(m.shares) != len(open) || len(m.byPeer) != len(byPeer) {
			t.Fatalf("%d bytes of %d connections are booked, want %d of %d, at most %d", m.used, len(m.shares), sum, len(open), m.total)
		}
		for peer, n := range byPeer {
			if m.byPeer[peer] != n || n > m.total/2 {
				t.Fatalf("%v has %d bytes booked, want %d, at most %d", peer, m.byPeer[peer], n, m.total/2)
			}
		}
	}
}

// An idle connection's send buffer is given back for another one's, a full one is not, and
// what a closed connection had is free when the peer has acknowledged everything.
func TestIdleBuffersAreGivenBack(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	idle, far := p.connect(t, b6)
	full, _ := p.connect(t, b6)
	closing, closingFar := p.connect(t, b6)
	transfer(t, closing, closingFar, 1<<20, 1)
	go func() { _, _ = idle.Write(make([]byte, 1<<20)) }()
	for n := 0; n < 1<<20; {
		k, err := far.Read(make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	stuff(t, full)
	for _, c := range []*Conn{idle, full, closing} {
		c.share.written.Store(time.Now().Add(-2 * idleAfter).UnixNano())
	}
	closing.Close()
	size := func(c *Conn) int {
		p.a.memory.mu.Lock()
		defer p.a.memory.mu.Unlock()
		return c.share.send
	}
	before := size(full)
	eventually(t, "the idle buffers are given back", func() bool {
		p.a.memory.reclaim()
		return size(idle) == leastSend && size(closing) == 0
	})
	if got := size(full); got != before || got <= leastSend {
		t.Errorf("a full buffer of %d bytes is booked with %d", before, got)
	}
	wg := sync.WaitGroup{}
	defer wg.Wait()
	_ = idle.SetDeadline(time.Now().Add(patience.Left()))
	wg.Go(func() { // It still works, and grows again.
		if _, err := idle.Write(make([]byte, 4<<20)); err != nil {
			t.Errorf("writing after the buffer was given back: %v", err)
		}
	})
	for n := 0; n < 4<<20; {
		k, err := far.Read(make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if size(idle) <= leastSend {
		t.Error("the buffer did not grow again")
	}
}

// A plain WireGuard peer may have any number of addresses, and must not have a share for each.
func TestAPeerWithManyAddressesHasOneShare(t *testing.T) {
	many := netip.MustParsePrefix("fd77::/48")
	o, err := Options{Addresses: []netip.Addr{a6}, TCPMemory: 16 << 20, Owner: func(a netip.Addr) netip.Addr {
		if many.Contains(a) {
			return many.Addr()
		}
		return a
	}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory(o)
	a := many.Addr()
	for range 64 {
		a = a.Next()
		for range 16 { // connections, as large as they may be
			s, err := m.open(a)
			if err != nil {
				break
			}
			m.grow(s, &s.send, m.mostSend)
			m.grow(s, &s.receive, m.mostReceive)
		}
	}
	if room := m.room(b6); room < m.total/5 {
		t.Errorf("another peer may have %d of %d bytes", room, m.total)
	}
}
