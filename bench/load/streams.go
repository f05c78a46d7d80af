package load

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
)

// BlockSize is the size of a write and of a read in bytes: iperf3's default for TCP, so that its
// figures can be compared.
const BlockSize = 128 << 10

// bulk sends as fast as the subject accepts over spec.Streams connections, and measures what
// arrives.
func bulk(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	if spec.Streams < 1 {
		return Result{}, fmt.Errorf("%d streams asked for; at least 1 is needed", spec.Streams)
	}
	w := newWorkers()
	defer w.close()
	if err := wake(ctx, ends); err != nil {
		return Result{}, err
	}
	var received counts
	for i := range spec.Streams {
		n, err := w.stream(ctx, ends, spec.Direction)
		if err != nil {
			return Result{}, fmt.Errorf("stream %d: %w", i+1, err)
		}
		received = append(received, n...)
	}
	return Measure(spec, received.load, w.failed)
}

// counts are the received bytes, one counter for each stream and direction.
type counts []*atomic.Uint64

func (c counts) load() []uint64 {
	n := make([]uint64, len(c))
	for i, one := range c {
		n[i] = one.Load()
	}
	return n
}

func (c counts) sum() (bytes uint64) {
	for _, n := range c.load() {
		bytes += n
	}
	return bytes
}

// stream starts one stream. Each direction has a goroutine at either end and a counter of
// received bytes.
func (w *workers) stream(ctx context.Context, ends Ends, direction string) (received counts, err error) {
	out, in, err := w.connect(ctx, ends)
	if err != nil {
		return nil, err
	}
	flow := func(to io.Writer, from io.Reader) {
		n := new(atomic.Uint64)
		received = append(received, n)
		w.Go(func() { w.send(to) })
		w.Go(func() { w.receive(from, n) })
	}
	switch direction {
	case "", Forward:
		flow(out, in)
	case Reverse:
		flow(in, out)
	case Both:
		flow(out, in)
		flow(in, out)
	default:
		return nil, fmt.Errorf("no direction %q", direction)
	}
	return received, nil
}

func (w *workers) send(c io.Writer) {
	block := make([]byte, BlockSize)
	for !w.closing.Load() {
		if _, err := c.Write(block); err != nil {
			w.fail("send", err)
			return
		}
	}
}

func (w *workers) receive(c io.Reader, n *atomic.Uint64) {
	block := make([]byte, BlockSize)
	for {
		k, err := c.Read(block)
		n.Add(uint64(k))
		if err != nil {
			w.fail("receive", err)
			return
		}
	}
}
