//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
)

// The service that the path tests keep busy: both ends of a connection send a known sequence of
// bytes and check what they receive.
const (
	streamService  = "stream"
	streamPort     = 8100 // inside the tunnel
	streamUpstream = "127.0.0.1:8100"
	streamLocal    = "127.0.0.1:8101"
)

// pace is how a stream sends: so many bytes in each interval, 100 KB/s, each way.
const (
	paceBytes    = 2000
	paceInterval = 20 * time.Millisecond
)

// bulkFlag in a stream's id makes both ends send as fast as they can.
const bulkFlag = 1 << 63

// sequence returns the byte at an offset of every stream. Its period, 251, is prime, so that data
// cut at a power of two is noticed.
func sequence(offset uint64) byte { return byte(offset % 251) }

// streamServer is the upstream of one host's stream service.
type streamServer struct {
	mu   sync.Mutex
	ends map[uint64]*streamEnd
	more chan struct{} // closed and replaced when an end is added
	wg   sync.WaitGroup
}

// serveStreams runs the upstream until the test ends.
func serveStreams(t *testing.T, host *netlab.Host) *streamServer {
	t.Helper()
	l, err := host.Listen(t.Context(), netip.MustParseAddrPort(streamUpstream))
	if err != nil {
		t.Fatal(err)
	}
	s := &streamServer{ends: map[uint64]*streamEnd{}, more: make(chan struct{})}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed at the test's end
			}
			s.wg.Go(func() { s.accept(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.closeAll()
		s.wg.Wait()
	})
	return s
}

// accept reads the connection's stream id, and runs its end.
func (s *streamServer) accept(c net.Conn) {
	var id [8]byte
	if _, err := io.ReadFull(c, id[:]); err != nil {
		c.Close()
		return
	}
	e := newStreamEnd(c, binary.BigEndian.Uint64(id[:]))
	s.mu.Lock()
	s.ends[binary.BigEndian.Uint64(id[:])] = e
	close(s.more)
	s.more = make(chan struct{})
	s.mu.Unlock()
	e.run()
}

func (s *streamServer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ends {
		e.c.Close()
	}
}

// await waits for the server's end of a stream.
func (s *streamServer) await(ctx context.Context, id uint64) (*streamEnd, error) {
	for {
		s.mu.Lock()
		e, more := s.ends[id], s.more
		s.mu.Unlock()
		if e != nil {
			return e, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("the upstream was not reached: %w", ctx.Err())
		}
	}
}

// streamEnd is one end of a stream.
type streamEnd struct {
	c    net.Conn
	bulk bool

	mu       sync.Mutex
	received uint64
	last     time.Time     // of the latest bytes
	longest  time.Duration // between two receptions, since the last mark
	err      error
}

func newStreamEnd(c net.Conn, id uint64) *streamEnd {
	return &streamEnd{c: c, bulk: id&bulkFlag != 0, last: time.Now()}
}

// run sends and receives until the connection ends.
func (e *streamEnd) run() {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { e.send(stop) })
	e.receive()
	close(stop)
	e.c.Close()
	wg.Wait()
}

func (e *streamEnd) send(stop <-chan struct{}) {
	tick := time.NewTicker(paceInterval)
	defer tick.Stop()
	b := make([]byte, paceBytes)
	for sent := uint64(0); ; sent += paceBytes {
		for i := range b {
			b[i] = sequence(sent + uint64(i))
		}
		if _, err := e.c.Write(b); err != nil {
			e.fail(err)
			return
		}
		if e.bulk {
			continue
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

func (e *streamEnd) receive() {
	b := make([]byte, 64<<10)
	for offset := uint64(0); ; {
		n, err := e.c.Read(b)
		for i, got := range b[:n] {
			if want := sequence(offset + uint64(i)); got != want {
				e.fail(fmt.Errorf("byte %d is %#x, want %#x", offset+uint64(i), got, want))
				return
			}
		}
		offset += uint64(n)
		e.note(offset)
		if err != nil {
			e.fail(err)
			return
		}
	}
}

func (e *streamEnd) note(received uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.received, e.longest, e.last = received, max(e.longest, now.Sub(e.last)), now
}

// fail stores the first error.
func (e *streamEnd) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
}

// stream is a busy connection through the tunnel.
type stream struct {
	t    *testing.T
	name string
	// late is called for a stall that was too long; by default it fails the test.
	late lateness
	ends [2]*streamEnd // the dialling one first
}

// dialTry limits one attempt to open a stream.
const dialTry = 5 * time.Second

// openStream opens a stream from one side through its local listener, retrying while nobody
// listens, and waits until bytes came both ways. It ends with the test.
func openStream(ctx context.Context, t *testing.T, from, to *site) *stream {
	t.Helper()
	return dialStream(ctx, t, from, to, 0)
}

// openBulk is openStream for a stream that sends as fast as it can.
func openBulk(ctx context.Context, t *testing.T, from, to *site) *stream {
	t.Helper()
	return dialStream(ctx, t, from, to, bulkFlag)
}

func dialStream(ctx context.Context, t *testing.T, from, to *site, flag uint64) *stream {
	t.Helper()
	s := &stream{t: t, name: from.name + " → " + to.name}
	s.late = func(what string, took, most time.Duration) { t.Helper(); late(t, what, took, most) }
	var wg sync.WaitGroup
	for id := uint64(time.Now().UnixNano()); ; id++ {
		err := s.open(ctx, &wg, id|flag, from, to)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("stream %s: %v", s.name, err)
		}
	}
	t.Cleanup(func() {
		s.close()
		wg.Wait()
	})
	return s
}

func (s *stream) open(ctx context.Context, wg *sync.WaitGroup, id uint64, from, to *site) error {
	ctx, cancel := context.WithTimeout(ctx, dialTry)
	defer cancel()
	c, err := from.host.DialContext(ctx, "tcp", streamLocal)
	if err != nil {
		<-time.After(poll) // nobody listens yet
		return err
	}
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], id)
	if _, err := c.Write(head[:]); err != nil {
		c.Close()
		return err
	}
	far, err := to.streams.await(ctx, id)
	if err != nil {
		c.Close()
		return err
	}
	near := newStreamEnd(c, id)
	s.ends = [2]*streamEnd{near, far}
	wg.Go(near.run)
	if err := s.flows(ctx); err != nil {
		s.close()
		return err
	}
	return nil
}

// flows waits until both ends have received more.
func (s *stream) flows(ctx context.Context) error {
	tick := time.NewTicker(paceInterval)
	defer tick.Stop()
	before := s.received()
	for {
		if err := s.broken(); err != nil {
			return err
		}
		if now := s.received(); now[0] > before[0] && now[1] > before[1] {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("stream %s stands still: %w", s.name, ctx.Err())
		}
	}
}

// carries waits until both ends have received so many bytes, and returns how long that took.
func (s *stream) carries(ctx context.Context, bytes uint64) time.Duration {
	s.t.Helper()
	start := time.Now()
	eventually(ctx, s.t, fmt.Sprintf("stream %s has carried %d bytes each way", s.name, bytes), func() (bool, string) {
		if err := s.broken(); err != nil {
			s.t.Fatalf("stream %s: %v", s.name, err)
		}
		n := s.received()
		return n[0] >= bytes && n[1] >= bytes, fmt.Sprintf("%d and %d bytes, resting for %v", n[0], n[1], s.gap().Round(time.Millisecond))
	})
	return time.Since(start)
}

func (s *stream) received() (n [2]uint64) {
	for i, e := range s.ends {
		e.mu.Lock()
		n[i] = e.received
		e.mu.Unlock()
	}
	return n
}

// broken returns why the stream failed; nil if it works.
func (s *stream) broken() error {
	var errs []error
	for _, e := range s.ends {
		e.mu.Lock()
		errs = append(errs, e.err)
		e.mu.Unlock()
	}
	return errors.Join(errs...)
}

// mark begins a new measurement of the longest gap.
func (s *stream) mark() {
	for _, e := range s.ends {
		e.mu.Lock()
		e.longest, e.last = 0, time.Now()
		e.mu.Unlock()
	}
}

// gap returns the longest time since the mark in which an end received nothing.
func (s *stream) gap() time.Duration {
	var d time.Duration
	for _, e := range s.ends {
		e.mu.Lock()
		d = max(d, e.longest, time.Since(e.last))
		e.mu.Unlock()
	}
	return d
}

// check waits until bytes flow both ways again, fails the test if the stream broke, and calls
// late if it stalled for longer than limit since the mark. It returns the gap.
func (s *stream) check(limit time.Duration) time.Duration {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit+patience)
	defer cancel()
	if err := s.flows(ctx); err != nil {
		s.t.Fatalf("%v (gap so far %v)", err, s.gap())
	}
	gap := s.gap()
	s.late("stream "+s.name+" rested", gap, limit)
	return gap
}

func (s *stream) close() {
	for _, e := range s.ends {
		e.c.Close()
	}
}
