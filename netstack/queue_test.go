package netstack

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// packet returns a packet of n bytes, each of value b.
func packet(n int, b byte) *stack.PacketBuffer {
	return stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(bytes.Repeat([]byte{b}, n))})
}

// fill puts packets until the queue is at its bound for senders that wait.
func (q *queue) fill(t *testing.T) {
	t.Helper()
	p := packet(64<<10, 0)
	defer p.DecRef()
	for range queueBytes / (64 << 10) {
		if got := q.put(p, p.Size(), true); got != queued {
			t.Fatalf("put gives %v while there is room", got)
		}
	}
}

func TestQueueKeepsOrderAcrossGrowth(t *testing.T) {
	q := newQueue()
	var want, got []byte
	for i := range 1000 {
		p := packet(1, byte(i))
		q.put(p, 1, false)
		p.DecRef()
		want = append(want, byte(i))
		if i%3 == 0 { // Moves the ring's head.
			taken, _ := q.take(nil, 1, -1)
			got = appendTaken(got, taken)
		}
	}
	q.close()
	for {
		taken, open := q.take(nil, 10, -1)
		if !open {
			break
		}
		if len(taken) > 10 {
			t.Errorf("%d packets were taken, want at most 10", len(taken))
		}
		got = appendTaken(got, taken)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d packets come out in another order than the %d that went in", len(got), len(want))
	}
}

func appendTaken(dst []byte, taken []*stack.PacketBuffer) []byte {
	for _, p := range taken {
		dst = append(dst, slices.Concat(appendViews(nil, p)...)...)
		p.DecRef()
	}
	return dst
}

func TestSendersWaitForRoom(t *testing.T) {
	q := newQueue()
	q.fill(t)
	p := packet(100, 0)
	defer p.DecRef()
	if got := q.put(p, 100, false); got != queued {
		t.Errorf("a packet that cannot wait gives %v, want it queued", got)
	}
	result := make(chan verdict)
	go func() { result <- q.put(p, 100, true) }()
	for { // Until the sender waits.
		q.mu.Lock()
		waiting := q.waiting
		q.mu.Unlock()
		if waiting > 0 {
			break
		}
		select {
		case got := <-result:
			t.Fatalf("put gives %v without waiting", got)
		default:
		}
	}
	if _, open := q.take(nil, queueBytes, -1); !open {
		t.Fatal("the queue is closed")
	}
	if got := <-result; got != queued {
		t.Errorf("put gives %v after there is room, want it queued", got)
	}
}

func TestSendersDoNotWaitForEver(t *testing.T) {
	p := packet(100, 0)
	defer p.DecRef()
	q := newQueue()
	q.fill(t)
	start := time.Now()
	if got := q.put(p, 100, true); got != queued || time.Since(start) < holdBack {
		t.Errorf("put gives %v after %v, want %v after %v", got, time.Since(start), queued, holdBack)
	}
	q.stopWaiting()
	for q.bytes < queueMost {
		if got := q.put(p, queueBytes, true); got != queued {
			t.Errorf("put gives %v with %d bytes when nobody waits any more, want %v", got, q.bytes, queued)
		}
	}
	if got := q.put(p, 100, true); got != queueFull {
		t.Errorf("put gives %v with %d bytes, want %v", got, q.bytes, queueFull)
	}
	q.close()
	if got := q.put(p, 100, true); got != queueClosed {
		t.Errorf("put gives %v, want %v", got, queueClosed)
	}
	if got := q.put(p, 100, false); got != queueClosed {
		t.Errorf("put gives %v, want %v", got, queueClosed)
	}
}

func TestQueueDropsBeyondItsPackets(t *testing.T) {
	q := newQueue()
	p := packet(1, 0)
	defer p.DecRef()
	for range queuePackets {
		if got := q.put(p, 1, false); got != queued {
			t.Fatalf("put gives %v, want it queued", got)
		}
	}
	if got := q.put(p, 1, false); got != queueFull {
		t.Errorf("packet %d gives %v, want %v", queuePackets+1, got, queueFull)
	}
}

// A segment that doesn't fit a batch continues in the next one.
func TestReadCarriesOverToTheNextBatch(t *testing.T) {
	out := newQueue()
	d := newDevice(&link{mtu: 1420, out: out, drops: new(drops)}, Options{})
	spec := packetSpec{v4: true, mss: 1000, seq: 5, flags: 0x19, payload: make([]byte, 20_500)}
	for i := range 3 {
		p := packet(0, 0)
		switch i {
		case 0, 2:
			views, gso := spec.build()
			p = stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(views[0])})
			p.GSOOptions = gso
		case 1: // Cannot be cut: dropped and counted, and no harm to its neighbours.
			p = packet(30, 0x45)
			p.GSOOptions = stack.GSO{Type: stack.GSOTCPv4, NeedsCsum: true, L3HdrLen: 20, MSS: 1000}
		}
		out.put(p, p.Size(), false)
		p.DecRef()
	}
	out.close()
	const batch, offset = 8, 16
	var got [][]byte
	var counts []int
	for {
		bufs, sizes := make([][]byte, batch), make([]int, batch)
		for i := range bufs {
			bufs[i] = make([]byte, offset+1420)
		}
		n, err := d.Read(bufs, sizes, offset)
		if err != nil {
			break
		}
		counts = append(counts, n)
		for i := range n {
			got = append(got, bufs[i][offset:offset+sizes[i]])
		}
	}
	if want := []int{8, 8, 8, 8, 8, 2}; !slices.Equal(counts, want) {
		t.Errorf("batches of %v packets, want %v", counts, want)
	}
	if len(got) != 42 {
		t.Fatalf("%d packets, want 42", len(got))
	}
	for _, segments := range [][][]byte{got[:21], got[21:]} {
		if err := checkSegments(spec, segments); err != nil {
			t.Error(err)
		}
	}
	if n := d.link.drops.unsegmented.Load(); n != 1 {
		t.Errorf("%d packets counted as uncuttable, want 1", n)
	}
}
