package tunnel

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// A peer that was busy keeps none of the buffers that it used.
func TestUsedBuffersAreLetGo(t *testing.T) {
	packets := func() [][]byte { return [][]byte{make([]byte, 1400), make([]byte, 60)} }
	t.Run("written", func(t *testing.T) {
		inner := newFakeTun()
		bufs := packets()
		if n, err := (&boundedDevice{Device: inner, boundary: newBoundary(1420)}).Write(bufs, 0); n != 2 || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		for i, want := range packets() {
			if got := <-inner.inbound; len(got) != len(want) {
				t.Errorf("packet %d arrived with %d bytes, want %d", i, len(got), len(want))
			}
			if bufs[i] != nil {
				t.Errorf("packet %d is still in the list", i)
			}
		}
	})
	t.Run("sent", func(t *testing.T) {
		b := newBoundedBind(underlay.New(underlay.Options{}), newBoundary(1420))
		to, err := b.ParseEndpoint(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9).String())
		if err != nil {
			t.Fatal(err)
		}
		bufs, before := packets(), packets()
		copy(bufs, before)
		if err := b.Send(bufs, to); err == nil {
			t.Error("a socket that is not open has sent")
		}
		for i, was := range before {
			if len(bufs[i]) != len(was) {
				t.Errorf("packet %d has %d bytes afterwards, want %d", i, len(bufs[i]), len(was))
			}
			if &bufs[i][0] == &was[0] {
				t.Errorf("packet %d is still in the list", i)
			}
		}
	})
}

// total is how many packets are inside.
func (w *inside) total() int {
	moving, stalled := w.count()
	return moving + stalled
}

// Packets to a peer that does not answer fill no queue, and packets to others do not wait behind
// them.
func TestPeerWithoutASessionHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		key := newKey(t)
		for laneOf(key) == laneOf(edge.key) {
			key = newKey(t)
		}
		gone := startNode(t, n, key, "192.0.2.9:51820")
		cloud.set(edge.as("edge", edge.addr), gone.as("gone", gone.addr))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		gone.stop()

		most := 0
		for range 10 * maxOut * stalledFactor {
			cloud.send(gone, "anybody?")
			most = max(most, cloud.boundary.outbound.total())
		}
		if allowed := (stalledFactor + 1) * maxOut; most > allowed {
			t.Errorf("%d packets were inside, want at most %d", most, allowed)
		}
		begin := time.Now()
		for range 2 * maxOut {
			cloud.send(gone, "anybody?")
			cloud.send(edge, "you")
			edge.expect(cloud, "you")
		}
		if each := time.Since(begin) / (2 * maxOut); each > 2*oneWay {
			t.Errorf("a packet to another peer takes %v, want %v", each, oneWay)
		}
		if cloud.DroppedUnsent() == 0 {
			t.Error("none of them counts as dropped")
		}
		connect(cloud, edge)
	})
}

// laneOf is the lane in which packets to a peer are counted.
func laneOf(k peer.PrivateKey) uint32 {
	a := peer.OverlayAddr(k.Public())
	return hashOf(a) % lanes
}

// packetsTo is a device from which packets to some addresses are read, in turn.
type packetsTo struct {
	tun.Device
	next func() netip.Addr
}

func (p packetsTo) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	to := p.next()
	sizes[0] = copy(bufs[0][offset:], packet(to, to, "anybody?"))
	return 1, nil
}

// A silent peer with many addresses takes one lane. With more it would hold up many others.
func TestSilentPeerWithManyAddressesTakesOneLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, other := netip.MustParseAddr("fd01::dead:beef"), netip.MustParseAddr("fd02::1234:5678")
		to := silent
		d := &boundedDevice{
			Device: packetsTo{next: func() netip.Addr { return to }}, boundary: newBoundary(1420),
		}
		d.owner = func(a netip.Addr) netip.Addr {
			if a == other {
				return other
			}
			return silent
		}
		passes := func(a netip.Addr) bool {
			to = a
			sizes := make([]int, 1)
			// Another buffer each time: WireGuard keeps the packets.
			if _, err := d.Read([][]byte{make([]byte, device.MaxMessageSize)}, sizes, 16); err != nil {
				t.Fatal(err)
			}
			return sizes[0] > 0
		}
		for i := range uint32(4 * maxOut * stalledFactor) {
			many := silent.As16()
			binary.BigEndian.PutUint32(many[12:], i*0x9e3779b1)
			passes(netip.AddrFrom16(many))
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			if !passes(other) {
				t.Error("a packet to another peer is dropped")
			}
		}
	})
}

// A peer that shares a lane with one that does not answer can still be reached.
func TestPeerBesideASilentOneIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		key := newKey(t)
		for laneOf(key) != laneOf(edge.key) {
			key = newKey(t)
		}
		gone := startNode(t, n, key, "192.0.2.9:51820")
		cloud.set(edge.as("edge", edge.addr), gone.as("gone", gone.addr))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)
		gone.stop()
		for range 4 * maxStalled {
			cloud.send(gone, "anybody?")
			time.Sleep(20 * time.Millisecond)
		}
		begin := time.Now()
		for waiting := true; waiting; {
			cloud.send(edge, "you")
			select {
			case <-edge.tun.inbound:
				waiting = false
			case <-time.After(tryEvery):
			}
		}
		if took := time.Since(begin); took > 10*tryEvery {
			t.Errorf("it takes %v until a packet gets through", took)
		}
	})
}

// Forged packets with the index of a live session do not delay others.
func TestForgedPacketsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		other := startNode(t, n, newKey(t), "192.0.2.9:51820")
		cloud.set(edge.as("edge", edge.addr))
		other.set(edge.as("edge", edge.addr))
		edge.set(cloud.as("cloud", cloud.addr), other.as("other", other.addr))
		connect(cloud, edge)
		connect(other, edge)
		n.mu.Lock()
		nth := 0
		n.lost = func(m []byte, from, _ netip.AddrPort) bool {
			if nth++; from == cloud.addr && m[0] == 4 && nth%700 != 0 {
				m[20]++
			}
			return false
		}
		n.mu.Unlock()
		for range 20 {
			for range 700 {
				cloud.send(edge, "flood")
			}
			begin := time.Now()
			other.send(edge, "you")
			for got := ""; got != "you"; {
				p := <-edge.tun.inbound
				got = string(p[40:])
			}
			if took := time.Since(begin); took > oneWay+5*idleWait {
				t.Fatalf("a packet of another peer took %v", took)
			}
			time.Sleep(stalledAfter - oneWay)
		}
	})
}

// The network is read only as fast as packets are delivered, and forged packets do not count as
// inside for ever.
func TestSlowDeliveryAndForgeriesLeaveNothingInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		cloud.set(edge.as("edge", edge.addr))
		edge.set(cloud.as("cloud", cloud.addr))
		connect(cloud, edge)

		nth, forge := 0, false
		n.mu.Lock()
		n.lost = func(m []byte, _, _ netip.AddrPort) bool {
			if nth++; forge && m[0] == 4 && nth%3 == 0 {
				m[20]++
			}
			return false
		}
		n.mu.Unlock()
		most := 0
		for range 4 * cap(edge.tun.inbound) / 4 {
			for range 4 {
				cloud.send(edge, "more")
			}
			time.Sleep(time.Millisecond)
			<-edge.tun.inbound
			most = max(most, edge.boundary.inbound.total())
		}
		if most < maxIn || most > maxIn+64 {
			t.Errorf("%d packets were inside, want %d and what one call brings", most, maxIn)
		}
		n.mu.Lock()
		forge = true
		n.mu.Unlock()
		for range 4 * maxIn {
			cloud.send(edge, "more")
			time.Sleep(time.Millisecond)
			edge.drain()
		}
		n.mu.Lock()
		forge = false
		n.mu.Unlock()
		connect(cloud, edge)
		synctest.Wait()
		for name, w := range map[string]*inside{
			"out of cloud": cloud.boundary.outbound, "into edge": edge.boundary.inbound,
			"out of edge": edge.boundary.outbound, "into cloud": cloud.boundary.inbound,
		} {
			if left := w.total(); left != 0 {
				t.Errorf("%d packets are inside for good, %s", left, name)
			}
		}
	})
}

// BenchmarkInside measures the cost of counting a packet on its way in and out.
func BenchmarkInside(b *testing.B) {
	w := newInside(1, maxOut, 1420)
	bufs := make([][]byte, 64)
	for i := range bufs {
		bufs[i] = new([device.MaxMessageSize]byte)[:]
	}
	for range b.N / len(bufs) {
		w.returned(bufs)
		w.wait()
		now := w.now()
		for _, buf := range bufs {
			if !w.refuses(7, now) {
				w.enter(buf, 1400, 7, now)
			}
		}
		w.cameOut(bufs)
	}
}
