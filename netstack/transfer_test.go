package netstack

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
)

// transfer sends size bytes of a reproducible stream from one end to the other, and
// compares bit for bit at the far end.
func transfer(t *testing.T, from, to *Conn, size int64, seed byte) {
	t.Helper()
	deadline := time.Now().Add(patience.Left())
	_ = from.SetDeadline(deadline)
	_ = to.SetDeadline(deadline)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		n, err := from.ReadFrom(io.LimitReader(random(seed), size))
		if err != nil || n != size {
			t.Errorf("sent %d of %d bytes: %v", n, size, err)
		}
		if err := from.CloseWrite(); err != nil {
			t.Errorf("CloseWrite: %v", err)
		}
	})
	c := &comparer{want: random(seed)}
	n, err := to.WriteTo(c)
	if err != nil || n != size {
		t.Errorf("received %d of %d bytes: %v", n, size, err)
	}
}

// comparer is a writer that compares what it gets with a stream.
type comparer struct {
	want io.Reader
	buf  []byte
	at   int64
}

var errDiffers = errors.New("the data differ")

func (c *comparer) Write(b []byte) (int, error) {
	if cap(c.buf) < len(b) {
		c.buf = make([]byte, len(b))
	}
	want := c.buf[:len(b)]
	if _, err := io.ReadFull(c.want, want); err != nil {
		return 0, err
	}
	if !bytes.Equal(b, want) {
		return 0, errDiffers
	}
	c.at += int64(len(b))
	return len(b), nil
}

func TestTransferArrivesBitForBit(t *testing.T) {
	p := newPair(t, Options{}, Options{}, impairment{})
	client, server := p.connect(t, b6)
	start := time.Now()
	transfer(t, client, server, transferSize, 1)
	t.Logf("%d MB in %v", transferSize>>20, time.Since(start).Round(time.Millisecond))
	// A sender waits for room for holdBack before a packet of it is dropped. That happens when a
	// busy machine leaves the device unread for so long.
	if st, most := p.a.Stats(), uint64(time.Since(start)/holdBack); st.Dropped[DropQueueFull] > most {
		t.Errorf("the sender's queue dropped %d times in %v; who waits %v before is dropped %d times at most",
			st.Dropped[DropQueueFull], time.Since(start), holdBack, most)
	}
	if st := p.b.Stats(); st.JoinedPackets < st.ReceivedPackets/2 {
		t.Errorf("of %d packets only %d were joined", st.ReceivedPackets, st.JoinedPackets)
	}
}

// Losses of 1 % keep one stream waiting for timers most of the time, so the volume is
// spread over streams that wait at the same time.
func TestTransferWithLossAndReorderingArrivesBitForBit(t *testing.T) {
	const streams = 64
	p := newPair(t, Options{}, Options{}, impairment{seed: 42, loss: 0.01, reorder: 0.02})
	start := time.Now()
	var wg sync.WaitGroup
	for i := range streams {
		client, server := p.connect(t, []netip.Addr{b6, b4}[i%2])
		wg.Go(func() { transfer(t, client, server, transferSize/streams, byte(100+i)) })
	}
	wg.Wait()
	st := p.a.Stats()
	t.Logf("%d MB in %v, %d retransmits, %d timeouts", transferSize>>20, time.Since(start).Round(time.Millisecond), st.TCPRetransmits, st.TCPTimeouts)
	if st.TCPRetransmits == 0 {
		t.Error("nothing was sent again: the pipe loses nothing, and the test tests nothing")
	}
}

// Both directions, both families and small MTUs at once, each stream its own data.
func TestManyTransfersAtOnce(t *testing.T) {
	p := newPair(t, Options{MTU: 1280}, Options{MTU: 1280}, impairment{seed: 7, loss: 0.002, reorder: 0.01})
	var wg sync.WaitGroup
	for i, at := range []netip.Addr{b6, b4, b6, b4} {
		client, server := p.connect(t, at)
		if i%2 == 1 {
			client, server = server, client
		}
		wg.Go(func() { transfer(t, client, server, transferSize/32, byte(10+i)) })
	}
	wg.Wait()
}
