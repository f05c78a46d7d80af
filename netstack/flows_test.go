package netstack

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"io"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/netstack/sender"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// overLongPath returns a pair whose round trip is long enough for package sender.
func overLongPath(t *testing.T, imp impairment) pair {
	imp.delay = 5 * time.Millisecond
	return newPair(t, Options{}, Options{}, imp)
}

// flowsWithout returns flows of peers with one address each, on paths with the network card's MTU.
func flowsWithout() *flows {
	return newFlows(windowFloor{}, func(a netip.Addr) netip.Addr { return a }, DefaultMTU, func(netip.Addr) int { return 0 }, func() {})
}

// Over a long path that loses every fiftieth packet everything arrives, and gVisor doesn't notice:
// its timers never expire, and it retransmits nothing. The state of the path is available.
func TestLossOnALongPathIsRepairedBelow(t *testing.T) {
	families(t, func(t *testing.T, _, b netip.Addr) {
		p := overLongPath(t, impairment{seed: 5, loss: 0.02, reorder: 0.01})
		var wg sync.WaitGroup
		for i := range 4 {
			client, server := p.connect(t, b)
			wg.Go(func() { transfer(t, client, server, 4<<20, byte(i)) })
		}
		wg.Wait()
		st, ok := p.a.PathState(b)
		if !ok || st.Connections == 0 || st.Rate == 0 || st.BaseRTT < 10*time.Millisecond || st.Lost == 0 || st.Whole < 10_000 {
			t.Errorf("the path's state is %+v, %v", st, ok)
		}
		if share := float64(st.Lost) / float64(st.Whole); share < 0.005 || share > 0.06 {
			t.Errorf("%.3f of packets count as lost, want about 0.02", share)
		}
		if s := p.a.Stats(); s.TCPRetransmits == 0 {
			t.Error("nothing was sent again")
		}
		if n := p.a.gv.Stats().TCP.FastRetransmit.Value() + p.a.gv.Stats().TCP.SACKRecovery.Value(); n > 0 {
			t.Errorf("gVisor recovered %d times by itself", n)
		}
	})
}

// The state of a connection ends with it, however it ends. Its path is remembered.
func TestFlowsEndWithTheirConnections(t *testing.T) {
	p := overLongPath(t, impairment{seed: 6, loss: 0.01})
	for i := range 8 {
		client, server := p.connect(t, b6)
		go func() { _, _ = client.Write(make([]byte, 1<<20)) }()
		if _, err := io.CopyN(io.Discard, server, 100<<10); err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 0:
			client.Abort()
			server.Close()
		case 1:
			server.Abort()
			client.Close()
		case 2:
			_, _ = io.CopyN(io.Discard, server, 1<<20-100<<10)
			client.Close()
			server.Close()
		case 3:
			p.a.Abort(only(b6))
			server.Close()
			client.Close()
		}
	}
	for _, s := range []*Stack{p.a, p.b} {
		eventually(t, "all flows end", func() bool { return s.dev.flows.count.Load() == 0 })
		s.dev.flows.mu.RLock()
		for _, peer := range s.dev.flows.peers {
			peer.mu.Lock()
			if len(peer.flows) > 0 || peer.path.State(0).InFlight != 0 {
				t.Errorf("%d flows and %+v are left", len(peer.flows), peer.path.State(0))
			}
			peer.mu.Unlock()
		}
		if n := len(s.dev.flows.byKey); n > 0 {
			t.Errorf("%d connections are left", n)
		}
		s.dev.flows.mu.RUnlock()
	}
	if _, ok := p.a.PathState(b6); !ok {
		t.Error("the path is forgotten")
	}
}

// gVisor reports an end twice. The second time another connection may have the same ends.
func TestAFlowEndsOnce(t *testing.T) {
	flows := flowsWithout()
	local, remote := netip.AddrPortFrom(a6, 1), netip.AddrPortFrom(b6, 2)
	first := flows.open(local, remote, 20*time.Millisecond, 1000)
	flows.close(first)
	second := flows.open(local, remote, 20*time.Millisecond, 1000)
	flows.close(first)
	if f := flows.find(second.key); f != second || second.gone || flows.count.Load() != 1 || second.peer.count != 1 {
		t.Errorf("found %p, want %p; ended %v, %d flows", f, second, second.gone, flows.count.Load())
	}
	flows.close(second)
	if n := flows.count.Load(); n != 0 || len(flows.byKey) != 0 {
		t.Errorf("%d flows are left, %d by key", n, len(flows.byKey))
	}
}

// A stack that has run for a long time keeps the path of a new peer.
func TestANewPathIsKnown(t *testing.T) {
	flows := flowsWithout()
	flows.began = flows.began.Add(-2 * keepPath)
	local := netip.AddrPortFrom(a6, 1)
	flows.open(local, netip.AddrPortFrom(b6, 2), 20*time.Millisecond, 1000)
	flows.open(local, netip.AddrPortFrom(b4, 2), 20*time.Millisecond, 1000)
	if n := len(*flows.list.Load()); n != 2 || len(flows.peers) != 2 {
		t.Errorf("%d of 2 peers are known, the device sees %d", len(flows.peers), n)
	}
}

// A connection reports how much of its data is on its way, and nothing when all has arrived.
func TestOutstanding(t *testing.T) {
	p := overLongPath(t, impairment{})
	client, server := p.connect(t, b6)
	var enough atomic.Bool
	var written atomic.Int64
	var busy sync.WaitGroup
	busy.Go(func() { // until it was seen
		for b := make([]byte, 64<<10); !enough.Load(); {
			written.Add(int64(len(b)))
			if _, err := client.Write(b); err != nil {
				return
			}
		}
	})
	reading := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, server); reading <- err }()
	eventually(t, "some is in flight and some waits", func() bool {
		waiting, inFlight, ok := client.Outstanding()
		return ok && waiting > 0 && inFlight > 0 && int64(waiting+inFlight) <= written.Load()
	})
	enough.Store(true)
	busy.Wait()
	eventually(t, "nothing is left", func() bool {
		waiting, inFlight, ok := client.Outstanding()
		return ok && waiting == 0 && inFlight == 0
	})
	client.Close()
	if err := <-reading; err != nil {
		t.Error(err)
	}
	server.Close()
	eventually(t, "nothing is on its way in an ended connection", func() bool {
		_, _, ok := client.Outstanding()
		return ok
	})
	if *below {
		return // The flag makes all paths long.
	}
	short := newPair(t, Options{}, Options{}, impairment{})
	short.a.long = time.Hour // However busy the machine is.
	client, _ = short.connect(t, b6)
	if _, _, ok := client.Outstanding(); ok {
		t.Error("a connection over a short path says what is on its way")
	}
}

// A reset comes after all data that was handed over before it, as it would without flows: a
// service's last words before it ends are not lost.
func TestAResetOvertakesNothing(t *testing.T) {
	var mu sync.Mutex
	sent, reset := make(map[uint16]uint32), make(map[uint16]uint32) // ends of data and first resets, by port
	p := newPair(t, Options{}, Options{}, impairment{delay: 20 * time.Millisecond, there: func(packet []byte) bool {
		tcp, _ := tcpOf(packet)
		n, seq := payloadOf(packet)
		port := binary.BigEndian.Uint16(tcp)
		mu.Lock()
		defer mu.Unlock()
		if _, over := reset[port]; over {
			return true
		}
		if tcp[tcpFlags]&flagRST != 0 {
			reset[port] = seq
		} else if n > 0 {
			sent[port] = seq + uint32(n)
		}
		return true
	}})
	has := func(m map[uint16]uint32, port uint16) bool {
		mu.Lock()
		defer mu.Unlock()
		_, ok := m[port]
		return ok
	}
	waited := 0
	for range 10 {
		client, _ := p.connect(t, b6)
		if _, err := client.Write(make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		f := p.a.dev.flows.find(keyOf(client.local, client.remote))
		port := client.local.Port()
		eventually(t, "something is sent", func() bool { return has(sent, port) })
		client.Abort()
		eventually(t, "the flow ends", func() bool { return p.a.dev.flows.find(f.key) == nil && has(reset, port) })
		mu.Lock()
		f.peer.mu.Lock()
		if end := uint32(f.end); sent[port] != end || reset[port] != end {
			t.Errorf("sent up to %d and reset at %d, want both at the end of what was handed over, %d", sent[port], reset[port], end)
		}
		if f.reset != nil {
			waited++
		}
		f.peer.mu.Unlock()
		mu.Unlock()
	}
	if waited == 0 {
		t.Error("no reset had to wait: the test tests nothing")
	}
}

// An endpoint that times out sends nothing. What arrives for it then is answered by a reset without
// an acknowledgement, which has the peer's sequence number. It leaves at once, because later the
// peer would have received more and would ignore it. What is sent after it repeats the earlier
// acknowledgement and window, or the peer would discard it.
func TestAResetWithoutAnAcknowledgement(t *testing.T) {
	for _, sent := range []bool{false, true} {
		flows := flowsWithout()
		f := flows.open(netip.AddrPortFrom(a6, 1), netip.AddrPortFrom(b6, 2), 20*time.Millisecond, 1000)
		f.most.Store(1000)
		take := func(packet []byte) bool {
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
			ip, _ := pkt.NetworkHeader().Consume(ipv6HeaderLen)
			tcp, _ := pkt.TransportHeader().Consume(tcpHeaderLen)
			taken := f.take(flows.now(), pkt, ip, tcp, flows.windows)
			if !taken {
				pkt.DecRef()
			}
			return taken
		}
		data := tcpPacket(false, flagACK|flagPSH, 1000)
		binary.BigEndian.PutUint32(data[ipv6HeaderLen+tcpAck:], 5000)
		if !take(data) {
			t.Fatal("data is not taken")
		}
		if sent {
			if _, _, ok := f.peer.path.Next(flows.now()); !ok {
				t.Fatal("nothing is due")
			}
		}
		wrote := func() []byte {
			packet := make([]byte, DefaultMTU)
			return packet[:f.write(packet, sender.Range{Start: f.start, End: f.end})]
		}
		before := wrote()
		if take(tcpPacket(false, flagRST, 0)[:ipv6HeaderLen+tcpHeaderLen]) {
			t.Errorf("the reset waits, when the data was sent: %v", sent)
		}
		if after := wrote(); !bytes.Equal(before, after) {
			t.Errorf("sent %v: after the reset data leaves as\n%x, before as\n%x", sent, after, before)
		}
		flows.forget(f)
	}
}

// The device may read at any moment while connections come and go.
func TestTheDeviceLooksWhileFlowsComeAndGo(t *testing.T) {
	first := flowsWithout()
	first.count.Add(1) // A connection, and no list yet.
	if d, n := first.wait(), first.send(nil, nil, 0); d >= 0 || n != 0 {
		t.Errorf("waits %v and sends %d packets without a path", d, n)
	}
	for range 200 {
		flows := flowsWithout()
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for !isClosed(done) {
				if flows.wait() >= 0 || flows.send(make([][]byte, 1), make([]int, 1), 0) != 0 {
					t.Error("something is due, and nothing was offered")
					return
				}
			}
		})
		for i := range uint16(10) {
			f := flows.open(netip.AddrPortFrom(a6, i), netip.AddrPortFrom(b6, 2), 20*time.Millisecond, 1000)
			if i%2 == 0 {
				flows.close(f)
			}
		}
		close(done)
		wg.Wait()
	}
}

// Of paths without a connection, the most recently used are kept.
func TestIdlePathsAreBounded(t *testing.T) {
	flows := flowsWithout()
	local, remote := netip.AddrPortFrom(a6, 1), b6
	for range 2 * mostIdle {
		remote = remote.Next()
		flows.close(flows.open(local, netip.AddrPortFrom(remote, 2), 20*time.Millisecond, 1000))
	}
	if n := len(flows.peers); n > mostIdle+1 || flows.peers[remote] == nil {
		t.Errorf("%d paths are kept, want %d and the last one", n, mostIdle)
	}
	open := flows.open(local, netip.AddrPortFrom(a4, 2), 20*time.Millisecond, 1000)
	for range 2 * mostIdle {
		remote = remote.Next()
		flows.close(flows.open(local, netip.AddrPortFrom(remote, 2), 20*time.Millisecond, 1000))
	}
	if flows.peers[a4] != open.peer {
		t.Error("a path with a connection was forgotten")
	}
}

// A peer may acknowledge data that was handed over and not sent. Neither the flow nor gVisor
// believes it: gVisor would hand over more without end.
func TestAcknowledgementsOfWhatWasNotSent(t *testing.T) {
	flows := flowsWithout()
	f := flows.open(netip.AddrPortFrom(b6, 1), netip.AddrPortFrom(a6, 2), 20*time.Millisecond, 1000)
	f.begin(1000, 500)
	f.sending.Offer(0, 5000)
	f.end = 5000
	tcp, _ := tcpOf(tcpPacket(false, flagACK, 1000))
	for _, ack := range []uint32{1001, 3000, 5000, 6000} {
		binary.BigEndian.PutUint32(tcp[tcpAck:], ack)
		f.receive(0, tcp)
		if got := binary.BigEndian.Uint32(tcp[tcpAck:]); got != 1000 || f.sending.Unacknowledged() != 1000 {
			t.Errorf("gVisor sees %d and the flow %d acknowledged for %d, when nothing was sent from 1000 on", got, f.sending.Unacknowledged(), ack)
		}
	}
}

// A path that changes is measured from scratch. One that nobody uses has no state.
func TestPathChanged(t *testing.T) {
	p := overLongPath(t, impairment{})
	p.a.PathChanged(b6)
	client, server := p.connect(t, b6)
	transfer(t, client, server, 1<<20, 1)
	before, _ := p.a.PathState(b6)
	p.a.PathChanged(b6)
	after, ok := p.a.PathState(b6)
	if !ok || before.Rate == 0 || after.Rate != 0 {
		t.Errorf("rates of %.0f before and %.0f after, %v; want some, and none", before.Rate, after.Rate, ok)
	}
}

// On a short path gVisor sends by itself.
func TestShortPathsAreGVisors(t *testing.T) {
	if *below {
		t.Skip("all connections are sent below")
	}
	p := newPair(t, Options{}, Options{}, impairment{})
	p.a.long, p.b.long = time.Hour, time.Hour // However busy the machine is.
	client, server := p.connect(t, b6)
	transfer(t, client, server, 1<<20, 1)
	if n := p.a.dev.flows.count.Load() + p.b.dev.flows.count.Load(); n != 0 {
		t.Errorf("%d connections are sent below", n)
	}
	if _, ok := p.a.PathState(b6); ok {
		t.Error("there is a path")
	}
}

// Changing a sequence number keeps the checksum right.
func TestSetSeq(t *testing.T) {
	for _, to := range []sender.Seq{0, 1, 0xffff, 0x10000, 0xfffffffe, 0xffffffff, 0x12345678} {
		packet := tcpPacket(to%2 == 0, flagACK, 1000)
		tcp, _ := tcpOf(packet)
		setSeq(tcp, to)
		if _, seq := payloadOf(packet); sender.Seq(seq) != to || !validTCP(packet) {
			t.Errorf("set to %d: it is %d, checksum valid: %v", to, seq, validTCP(packet))
		}
	}
}

// A send buffer grows with the path's capacity, not with what was sent over it. Data that waits in
// it is late, and its memory is not available to others.
func TestSendBufferFollowsThePath(t *testing.T) {
	const carried, most = 4 << 20, 3 << 20
	var bytes atomic.Int64
	p := newPair(t, Options{}, Options{}, impairment{delay: 40 * time.Millisecond, there: func(packet []byte) bool {
		if len(packet) > 1000 {
			time.Sleep(300 * time.Microsecond) // This is the path's rate.
		}
		bytes.Add(int64(len(packet)))
		return true
	}})
	client, server := p.connect(t, b6)
	go func() { _, _ = io.Copy(io.Discard, server) }()
	go func() { _, _ = io.Copy(client, random(1)) }()
	eventually(t, "some seconds' worth is carried", func() bool { return bytes.Load() > carried })
	p.a.memory.mu.Lock()
	defer p.a.memory.mu.Unlock()
	if got := client.share.send; got > most {
		t.Errorf("the send buffer has %d bytes, want %d at most", got, most)
	}
}

// Written data waits in Write, not in a buffer, beyond a little more than what is in flight. The
// path still has enough to carry.
func TestWritesWaitForWhatIsUnsent(t *testing.T) {
	const least = 32 << 10
	p := overLongPath(t, impairment{})
	p.a.memory.shortPath = least
	client, server := p.connect(t, b6)
	f := client.share.below
	var most atomic.Int64
	go func() {
		window := 0 // the largest: it may have shrunk since something was let in
		for b := make([]byte, 256<<10); ; {
			if _, err := client.Write(b); err != nil {
				return
			}
			f.peer.mu.Lock()
			window = max(window, f.peer.path.Window())
			most.Store(max(most.Load(), int64(f.unsent()-max(least, window/unsentPart))))
			f.peer.mu.Unlock()
		}
	}()
	if _, err := io.CopyN(io.Discard, server, 4<<20); err != nil {
		t.Fatal(err)
	}
	// One piece may exceed the bound.
	if got := most.Load(); got > int64(client.piece) {
		t.Errorf("%d bytes more are written and unsent than there should be, want %d at most", got, client.piece)
	}
	client.Abort()
}

// A writer that waits because of unsent data ends with its connection, whoever ends it.
func TestWritersThatWaitEndWithTheirConnection(t *testing.T) {
	for name, end := range map[string]func(p pair, client, server *Conn){
		"closed here":     func(_ pair, client, _ *Conn) { client.Close() },
		"no more to come": func(_ pair, client, _ *Conn) { _ = client.CloseWrite() },
		"reset here":      func(_ pair, client, _ *Conn) { client.Abort() },
		"reset there":     func(_ pair, _, server *Conn) { server.Abort() },
		"peer taken away": func(p pair, _, _ *Conn) { p.a.Abort(only(b6)) },
		"deadline":        func(_ pair, client, _ *Conn) { _ = client.SetWriteDeadline(time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, Options{}, Options{}, impairment{delay: 5 * time.Millisecond, there: func(packet []byte) bool {
				return len(packet) < 500 // No data passes.
			}})
			p.a.memory.shortPath = 32 << 10
			client, server := p.connect(t, b6)
			if _, err := client.Write([]byte{1}); err != nil { // It has begun to send.
				t.Fatal(err)
			}
			if _, err := server.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { _, err := io.Copy(client, random(1)); done <- err }()
			f := client.share.below
			eventually(t, "the writer waits", func() bool {
				f.peer.mu.Lock()
				defer f.peer.mu.Unlock()
				return f.resume > 0
			})
			end(p, client, server)
			if err := <-done; err == nil {
				t.Error("the write succeeded")
			}
			client.Abort()
		})
	}
}

// An idle connection needs little more memory for its flow.
func TestIdleConnectionsCostLittle(t *testing.T) {
	const connections, most = 1000, 1 << 10
	each := func(long time.Duration) int64 {
		p := newPair(t, Options{}, Options{}, impairment{})
		p.a.long, p.b.long = long, long
		l, addr := p.listen(t, b6)
		before := heap()
		conns := make([]*Conn, 0, 2*connections)
		for range connections {
			client, err := p.a.DialTCP(within(t), addr)
			if err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			server := c.(*Conn)
			conns = append(conns, client, server)
			for _, ends := range [][2]*Conn{{client, server}, {server, client}} {
				if _, err := ends[0].Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
				if _, err := ends[1].Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		after := heap()
		for _, c := range conns {
			c.Abort()
		}
		return (after - before) / (2 * connections)
	}
	more := int64(math.MaxInt64)
	for i := 0; i < 3 && more > most; i++ { // What ends in the meantime is in the heap too.
		without, with := each(time.Hour), each(0)
		t.Logf("an end of an idle connection takes %d bytes, %d with what sends its data", without, with)
		more = min(more, with-without)
	}
	if more > most {
		t.Errorf("%d bytes more, want %d at most", more, most)
	}
}

// offering returns a flow over 20 ms with size bytes to send, in packets of 1000.
func offering(flows *flows, remote netip.Addr, size sender.Seq) *flow {
	f := flows.open(netip.AddrPortFrom(a6, 1), netip.AddrPortFrom(remote, 2), 20*time.Millisecond, 1000)
	f.begin(0, 1000)
	p := tcpPacket(false, flagACK, 0)
	f.refresh(p[:ipv6HeaderLen], p[ipv6HeaderLen:], true, windowFloor{})
	f.end = size
	f.peer.mu.Lock()
	defer f.peer.mu.Unlock()
	f.peer.flows[f.sending] = f
	f.sending.Offer(flows.now(), f.end)
	f.peer.scheduleLocked()
	return f
}

// However fast the device reads, packets leave in batches: it rests after each that is not a whole
// train, and a train leaves in a single system call.
func TestPacketsOfAFastPathLeaveInBatches(t *testing.T) {
	const (
		size  = 16 << 20
		reads = 5 * time.Microsecond // how long each takes
		trip  = 20 * time.Millisecond
	)
	synctest.Test(t, func(t *testing.T) {
		flows := flowsWithout()
		f := offering(flows, b6, size)
		f.held.add(heldSegment{Range: sender.Range{End: size}, pkt: stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(make([]byte, size))})})
		bufs, sizes, offset := batchBuffers()
		batches, parts := 0, 0
		for f.sending.Sent() != size {
			n := flows.send(bufs, sizes, offset)
			if n == 0 {
				time.Sleep(min(max(flows.wait(), reads), time.Millisecond)) // or until acknowledged
				continue
			}
			total := 0
			for _, size := range sizes[:n] {
				total += datagramSize(size, DefaultMTU)
			}
			batches++
			switch whole := total > trainBytes-datagramSize(sizes[0], DefaultMTU); {
			case total > trainBytes:
				t.Fatalf("%d packets, %d bytes of datagrams, do not fit one system call", n, total)
			case !whole:
				parts++
			case flows.rests > flows.now():
				t.Fatal("it rests after a whole train, and more may be due")
			}
			sent := f.sending.Sent()
			time.AfterFunc(trip, func() {
				f.peer.mu.Lock()
				defer f.peer.mu.Unlock()
				f.sending.OnAck(flows.now(), sender.Ack{Ack: sent, Window: 1 << 30})
				f.peer.scheduleLocked()
			})
			time.Sleep(reads)
		}
		took := flows.now()
		t.Logf("%d batches in %v, %d of them not whole", batches, took, parts)
		if parts > int(took/rest)+1 {
			t.Errorf("of %d batches in %v %d were not whole trains, want one in %v at most", batches, took, parts, rest)
		}
	})
}

// A peer that connects from many addresses has one path, and one turn: another peer's packets leave
// as often as all of its together.
func TestAPeerWithManyAddressesHasOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flows := newFlows(windowFloor{}, siteOf, DefaultMTU, func(netip.Addr) int { return 0 }, func() {})
		send := func(remote netip.Addr) *flow { return offering(flows, remote, 100_000) }
		many := netip.MustParseAddr("fd01::")
		for range 200 {
			many = many.Next()
			send(many)
		}
		other := send(netip.MustParseAddr("fd02::1"))
		const batches = 8
		for range batches {
			bufs, sizes, offset := batchBuffers()
			time.Sleep(flows.wait()) // until the pacers let one pass
			if n := flows.send(bufs[:1], sizes, offset); n != 1 {
				t.Fatalf("%d packets leave", n)
			}
		}
		if sent := other.sending.Sent(); sent != batches/2*1000 {
			t.Errorf("of %d packets %d are the other peer's, want half", batches, sent/1000)
		}
	})
}

// The addresses of a peer share a path, and each has the MTU that was set for it.
func TestAddressesOfAPeerHaveTheirOwnMTU(t *testing.T) {
	s := stackOfSites(t)
	narrow, wide := netip.MustParseAddr("fd01::1"), netip.MustParseAddr("fd01::2")
	open := func(remote netip.Addr) *flow {
		f := s.dev.flows.open(netip.AddrPortFrom(a6, 1), netip.AddrPortFrom(remote, 2), 20*time.Millisecond, 1392)
		f.begin(0, 1392)
		f.hdr = ipv6HeaderLen + tcpHeaderLen
		f.peer.flows[f.sending] = f
		return f
	}
	a, b := open(narrow), open(wide)
	s.SetPathMTU(narrow, 1300)
	if x, y := a.packetSize(), b.packetSize(); x != 1300-a.hdr || y != 1392 || a.peer != b.peer {
		t.Errorf("packets have up to %d and %d bytes, want %d and 1392", x, y, 1300-a.hdr)
	}
}

// stackOfSites returns a stack for whose peers each has a /16.
func stackOfSites(t *testing.T) *Stack {
	t.Helper()
	s, err := New(Options{Addresses: []netip.Addr{a6}, Owner: siteOf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func siteOf(a netip.Addr) netip.Addr { return netip.PrefixFrom(a, 16).Masked().Addr() }

// otherSite returns an address of a peer whose packets are counted apart from those to an address.
func otherSite(s *Stack, from netip.Addr) netip.Addr {
	hash := func(a netip.Addr) uint8 { return uint8(maphash.Comparable(s.seed, siteOf(a))) }
	for n := byte(2); ; n++ {
		if a := netip.AddrFrom16([16]byte{0xfd, n, 15: 1}); hash(a) != hash(from) {
			return a
		}
	}
}
