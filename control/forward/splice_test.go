package forward

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// carried opens a connection from cloud to the API server and returns both ends.
func carried(t *testing.T, g *gateway) (peer, up *net.TCPConn) {
	t.Helper()
	address, conns := upstream(t)
	g.offer(address)
	peer = g.dial(cloudAddr, api.PortAPIServer).conn()
	return peer, take(t, conns)
}

func TestHalfCloseByThePeerEndsItsStreamOnly(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	peer, up := carried(t, g)
	send(t, peer, "request")
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantRead(t, up, "request")
	wantEOF(t, up)
	send(t, up, "late answer")
	wantRead(t, peer, "late answer")
	up.Close()
	wantEOF(t, peer)
	g.wg.Wait() // the flow ended by itself
}

func TestHalfCloseByTheUpstreamEndsItsStreamOnly(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	peer, up := carried(t, g)
	send(t, up, "greeting")
	if err := up.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantRead(t, peer, "greeting")
	wantEOF(t, peer)
	send(t, peer, "late upload")
	wantRead(t, up, "late upload")
	peer.Close()
	wantEOF(t, up)
	g.wg.Wait()
}

func TestResetOfOneSideResetsTheOther(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	for name, c := range map[string]struct{ byPeer bool }{"by the peer": {true}, "by the upstream": {false}} {
		t.Run(name, func(t *testing.T) {
			first, second := carried(t, g)
			if !c.byPeer {
				first, second = second, first
			}
			send(t, first, "x")
			wantRead(t, second, "x")
			abort(first)
			wantReset(t, second)
			g.wg.Wait()
		})
	}
}

func TestBytesAreCarriedUnchangedAndCounted(t *testing.T) {
	const size = 32 << 20
	g := newGateway(t, Limits{}, nil)
	peer, up := carried(t, g)
	sum := func(c *net.TCPConn, seed byte, got *[32]byte) func() {
		return func() {
			h := sha256.New()
			if _, err := io.Copy(h, c); err != nil {
				t.Errorf("read: %v", err)
			}
			h.Sum(got[:0])
		}
	}
	write := func(c *net.TCPConn, seed byte) func() {
		return func() {
			if _, err := io.CopyN(c, rand.NewChaCha8([32]byte{seed}), size); err != nil {
				t.Errorf("write: %v", err)
			}
			_ = c.CloseWrite()
		}
	}
	want := func(seed byte) [32]byte {
		h := sha256.New()
		_, _ = io.CopyN(h, rand.NewChaCha8([32]byte{seed}), size)
		return [32]byte(h.Sum(nil))
	}
	f := g.flows.matching(func(*flow) bool { return true })[0]
	var atPeer, atUp [32]byte
	var wg sync.WaitGroup
	wg.Go(write(peer, 1))
	wg.Go(write(up, 2))
	wg.Go(sum(peer, 2, &atPeer))
	wg.Go(sum(up, 1, &atUp))
	wg.Wait()
	if atUp != want(1) || atPeer != want(2) {
		t.Error("the bytes that arrived are not those that were sent")
	}
	g.wg.Wait()
	if s := f.snapshot(); s.RxBytes != size || s.TxBytes != size {
		t.Errorf("counted %d received and %d sent, want %d each", s.RxBytes, s.TxBytes, size)
	}
}

// stalled is an upstream that never takes a byte until it is closed.
type stalled struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (s *stalled) Write([]byte) (int, error) { <-s.closed; return 0, net.ErrClosed }
func (s *stalled) Read([]byte) (int, error)  { <-s.closed; return 0, net.ErrClosed }
func (s *stalled) CloseWrite() error         { return nil }
func (s *stalled) Close() error              { s.once.Do(func() { close(s.closed) }); return nil }

func (s *stalled) SetReadDeadline(time.Time) error { return nil }

// endless always has more to read, as much as fits.
type endless struct {
	stalled
	read atomic.Int64
}

func (e *endless) Read(b []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, net.ErrClosed
	default:
	}
	e.read.Add(int64(len(b)))
	return len(b), nil
}

func TestSlowReaderIsNotReadAheadOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flows := NewFlows(Limits{})
		f, _ := flows.begin(DirectionInbound, "cloud", "apiServer", "r")
		src := &endless{stalled: stalled{closed: make(chan struct{})}}
		dst := &stalled{closed: make(chan struct{})}
		f.attach(src)
		f.attach(dst)
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.splice(src, dst)
			flows.end(f)
		}()
		synctest.Wait() // everything that can happen has happened
		if n := src.read.Load(); n == 0 || n > smallBuffer+largeBuffer {
			t.Errorf("%d bytes were read for a reader that takes none, at most one buffer (%d) is allowed", n, smallBuffer+largeBuffer)
		}
		time.Sleep(24 * time.Hour) // virtual: an open connection has no idle time-out
		select {
		case <-done:
			t.Error("the connection was ended while idle")
		default:
		}
		f.abort()
		<-done
	})
}

func TestBackPressureReachesTheSenderThroughRealTCP(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	peer, up := carried(t, g)
	_ = up.SetReadBuffer(64 << 10)
	_ = peer.SetWriteBuffer(64 << 10)

	// Write until the sender has been blocked for a while: only full buffers cause that.
	stuck, chunk, written := 0, make([]byte, 64<<10), 0
	for stuck < 3 {
		_ = peer.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		n, err := peer.Write(chunk)
		written += n
		if err == nil || n > 0 {
			stuck = 0
		} else {
			stuck++
		}
		if written > 256<<20 {
			t.Fatal("a reader that takes nothing did not stop the sender")
		}
	}
	_ = peer.CloseWrite() // after the last byte that the sender got rid of
	total, err := io.Copy(io.Discard, up)
	if err != nil || total != int64(written) {
		t.Errorf("read %d bytes, %v; want all %d", total, err, written)
	}
	up.Close()
	g.wg.Wait()
}

func TestHalfClosedAndSilentForAnHourIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flows := NewFlows(Limits{})
		f, _ := flows.begin(DirectionInbound, "cloud", "apiServer", "r")
		gone := &finished{stalled{closed: make(chan struct{})}}
		silent := &stalled{closed: make(chan struct{})}
		f.attach(gone)
		f.attach(silent)
		start := time.Now()
		f.splice(gone, silent)
		flows.end(f)
		if took := time.Since(start); took < halfClosedIdle || took > 2*halfClosedIdle {
			t.Errorf("ended after %s, want about %s", took, halfClosedIdle)
		}
	})
}

// finished has ended its stream already.
type finished struct{ stalled }

func (*finished) Read([]byte) (int, error) { return 0, io.EOF }

func TestWindowGrowsWithTheStreamAndShrinksWhenItRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newBuffers(2*largeBuffer, largeBuffer)
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		w := window{pool: pool, peer: "cloud", src: here}
		if len(w.next()) != smallBuffer {
			t.Fatal("does not begin small")
		}
		w.adapt(smallBuffer - 1)
		if len(w.next()) != smallBuffer {
			t.Error("grew although the buffer was not filled")
		}
		w.adapt(smallBuffer)
		if len(w.next()) != largeBuffer || pool.lent != largeBuffer {
			t.Error("did not grow although the buffer was filled")
		}
		if pool.getLarge("cloud") != nil {
			t.Error("a peer got more than its share")
		}
		if b := pool.getLarge("other"); b == nil {
			t.Error("another peer got nothing")
		} else {
			if pool.getLarge("third") != nil {
				t.Error("more was lent than there is")
			}
			pool.putLarge("other", b)
		}
		start := time.Now()
		_, err := here.Read(w.next())
		if !w.expired(err) {
			t.Fatalf("waiting ended with %v", err)
		}
		if rest := time.Since(start); rest < holdLarge || rest > 2*holdLarge {
			t.Errorf("the large buffer was held for %s of rest", rest)
		}
		w.shrink()
		if len(w.next()) != smallBuffer || pool.lent != 0 {
			t.Error("did not shrink")
		}

		w.adapt(smallBuffer)
		for range smallReads {
			w.adapt(100)
		}
		if len(w.next()) != smallBuffer {
			t.Error("a trickle kept the large buffer")
		}
		go func() { _, _ = there.Write([]byte("x")) }()
		time.Sleep(10 * holdLarge)
		if n, err := here.Read(w.next()); n != 1 || err != nil {
			t.Errorf("a deadline was left behind: %d, %v", n, err)
		}
		w.release()
	})
}
