package auth

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// On a fast path a load ends by its size, and everything except the first read is counted.
func TestALoadIsMeasuredBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		to, from, err := s.client(edgeKey).Throughput(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for way, l := range map[string]Load{"to": to, "from": from} {
			if l.Bytes > loadBytes || l.Bytes < loadBytes-loadChunk {
				t.Errorf("%s the peer: %d bytes, want nearly %d", way, l.Bytes, loadBytes)
			}
		}
		_, _, err = s.client(edgeKey).Throughput(t.Context())
		var answer *Error
		if !errors.Is(err, ErrRateLimited) || !errors.As(err, &answer) || answer.RetryAfter <= 0 || answer.RetryAfter > 10*time.Second {
			t.Errorf("another at once: got %#v, want %v within 10 s", err, ErrRateLimited)
		}
		time.Sleep(10 * time.Second) // virtual
		if _, _, err := s.client(edgeKey).Throughput(t.Context()); err != nil {
			t.Errorf("10 s later: %v", err)
		}
		s.stop()
	})
}

// The second begins when the connection is there, however long that takes.
func TestALoadWaitsForItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		client := s.client(edgeKey)
		dial := client.dial
		client.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(loadTime) // virtual
			return dial(ctx, network, addr)
		}
		if to, err := client.sendLoad(t.Context()); err != nil || to.Bytes < loadBytes-loadChunk {
			t.Errorf("%d bytes, %v; want nearly %d", to.Bytes, err, loadBytes)
		}
		s.stop()
	})
}

func TestAnEmptyLoadShowsNoRate(t *testing.T) {
	if got, err := measured(Load{Took: time.Second}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %+v, %v; want %v", got, err, ErrUnreachable)
	}
}

// A path that is too slow for all that was sent is measured by what arrived until the deadline.
func TestASlowPathIsMeasured(t *testing.T) {
	const burst = 8000
	for what, c := range map[string]struct {
		conn slowConn
		want float64 // bytes a second
	}{
		"slow":                      {slowConn{every: 10 * time.Millisecond, bytes: 40}, 4000},
		"a burst, and nothing more": {slowConn{every: time.Minute, bytes: burst}, burst / (loadTime + loadGrace).Seconds()},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, nil)
				client := s.client(edgeKey)
				dial := client.dial
				client.dial = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
					conn := c.conn
					conn.Conn, err = dial(ctx, network, addr)
					return &conn, err
				}
				to, err := client.sendLoad(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := to.BitsPerSecond() / 8; got < 0.7*c.want || got > 1.1*c.want {
					t.Errorf("%g bytes a second, want about %g", got, c.want)
				}
				s.stop()
				time.Sleep(c.conn.every) // virtual: the writer sees that its connection is closed
			})
		})
	}
}

// slowConn lets some bytes through at once, and as many again after each pause.
type slowConn struct {
	net.Conn
	every time.Duration
	bytes int
	sent  int
}

func (c *slowConn) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, c.bytes/8) {
		if c.sent += len(part); c.sent > c.bytes {
			time.Sleep(c.every) // virtual
			c.sent = len(part)
		}
		m, err := c.Conn.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func TestOnlyPeersMayLoad(t *testing.T) {
	s := serve(t, nil)
	pending := peer.PublicKey{5}
	s.dir.set(Caller{Name: "new", PublicKey: pending, Pending: true})
	s.dir.set(Caller{PublicKey: ticketKey, Kind: KindOneTime})
	for key, want := range map[peer.PublicKey]error{pending: ErrPending, ticketKey: ErrDenied, {99}: ErrDenied} {
		if _, _, err := s.client(key).Throughput(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v: got %v, want %v", key, err, want)
		}
	}
}

// While one peer measures, another one's measurement is refused, because it would disturb the
// first.
func TestOneThroughputIsMeasuredAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, nil)
		other := peer.PublicKey{6}
		s.dir.set(Caller{Name: "berlin", PublicKey: other})
		body, feed := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.client(edgeKey).addr+pathThroughput, body)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			err := s.client(edgeKey).send(t.Context(), req, func(resp *http.Response) error {
				_, err := io.Copy(io.Discard, resp.Body)
				return err
			})
			done <- err
		}()
		if _, err := feed.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, _, err := s.client(other).Throughput(t.Context()); !errors.Is(err, ErrRateLimited) && !strings.Contains(err.Error(), "another peer's throughput") {
			t.Errorf("beside another's: got %v", err)
		}
		_ = feed.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.stop()
	})
}

// A load ends at its deadline. A measurement that breaks off is an error.
func TestALoadThatStopsIsGivenUp(t *testing.T) {
	clock := time.Now()
	l := newLoad()
	if n, err := l.Read(make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("got %d bytes and %v", n, err)
	}
	l.until = clock
	if n, err := l.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after its time: %d bytes and %v", n, err)
	}
	if _, err := measure(io.MultiReader(strings.NewReader("some"), errReader{})); err == nil {
		t.Error("a load that breaks off counts")
	}
	if got := (Load{Bytes: 1e6, Took: 2 * time.Second}).BitsPerSecond(); got != 4e6 {
		t.Errorf("1 MB in 2 s is %g bit/s", got)
	}
	if got := (Load{Bytes: 1e6}).BitsPerSecond(); got != 0 {
		t.Errorf("in no time: %g bit/s", got)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
