package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// BlockSize is the length of one write and of one read in bytes: iperf3's default for
// TCP, so that its figures and these are of the same load.
const BlockSize = 128 << 10

// connectTimeout bounds the time until a stream is up, the tunnel's handshake included.
const connectTimeout = 20 * time.Second

// bulk sends as fast as the subject takes it over spec.Streams connections, from the
// dialling end to the accepting one, and measures what arrives.
func bulk(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	if spec.Streams < 1 {
		return Result{}, fmt.Errorf("%d streams asked for; at least 1 is needed", spec.Streams)
	}
	s := &streams{failed: make(chan error, 2*spec.Streams)}
	defer s.close()
	if err := wake(ctx, ends); err != nil {
		return Result{}, err
	}
	for i := range spec.Streams {
		if err := s.add(ctx, ends); err != nil {
			return Result{}, fmt.Errorf("stream %d: %w", i+1, err)
		}
	}
	return Measure(spec, s.count, s.failed)
}

// streams are the connections of a run, each with a goroutine at either end.
type streams struct {
	conns    []net.Conn
	received []*atomic.Uint64
	closing  atomic.Bool
	workers  sync.WaitGroup
	failed   chan error // Buffered for every worker.
}

// add connects one stream and sets it going.
func (s *streams) add(ctx context.Context, ends Ends) error {
	out, in, err := connect(ctx, ends)
	if err != nil {
		return err
	}
	s.conns = append(s.conns, out, in)
	n := new(atomic.Uint64)
	s.received = append(s.received, n)
	s.workers.Go(func() { s.send(out) })
	s.workers.Go(func() { s.receive(in, n) })
	return nil
}

// wake connects once and hangs up, so that the streams find a tunnel that is up: a
// handshake would count into the first one's round-trip time, by which TCP sets itself up.
func wake(ctx context.Context, ends Ends) error {
	out, in, err := connect(ctx, ends)
	if err != nil {
		return fmt.Errorf("first connection: %w", err)
	}
	out.Close()
	in.Close()
	return nil
}

// connect makes a connection and returns its two ends. When it fails the listener is
// closed, since nothing else ends the goroutine that accepts.
func connect(ctx context.Context, ends Ends) (out, in net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	type accepted struct {
		conn net.Conn
		err  error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := ends.Listener.Accept()
		got <- accepted{c, err}
	}()
	giveUp := func(err error) (net.Conn, net.Conn, error) {
		err = errors.Join(err, ends.Listener.Close())
		if a := <-got; a.conn != nil {
			a.conn.Close()
		}
		if out != nil {
			out.Close()
		}
		return nil, nil, err
	}
	if out, err = ends.Dial(ctx); err != nil {
		out = nil // It may hold a nil pointer of the subject's type.
		return giveUp(fmt.Errorf("dial: %w", err))
	}
	select {
	case a := <-got:
		if a.err != nil {
			out.Close()
			return nil, nil, fmt.Errorf("accept: %w", a.err)
		}
		return out, a.conn, nil
	case <-ctx.Done():
		return giveUp(fmt.Errorf("accept: %w", ctx.Err()))
	}
}

func (s *streams) send(c io.Writer) {
	block := make([]byte, BlockSize)
	for !s.closing.Load() {
		if _, err := c.Write(block); err != nil {
			s.fail("send", err)
			return
		}
	}
}

func (s *streams) receive(c io.Reader, n *atomic.Uint64) {
	block := make([]byte, BlockSize)
	for {
		k, err := c.Read(block)
		n.Add(uint64(k))
		if err != nil {
			s.fail("receive", err)
			return
		}
	}
}

// fail reports an error that nobody meant to cause.
func (s *streams) fail(what string, err error) {
	if !s.closing.Load() {
		s.failed <- fmt.Errorf("%s: %w", what, err)
	}
}

func (s *streams) count() []uint64 {
	n := make([]uint64, len(s.received))
	for i, r := range s.received {
		n[i] = r.Load()
	}
	return n
}

// close ends every connection and waits for its goroutines. Errors of closing say
// nothing about the measurement.
func (s *streams) close() {
	s.closing.Store(true)
	for _, c := range s.conns {
		_ = c.SetDeadline(time.Unix(1, 0)) // Ends what blocks, also where Close waits for a last packet.
		_ = c.Close()
	}
	s.workers.Wait()
}
