package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

const (
	// A measurement ends after loadTime or loadBytes, whichever comes first: long enough for TCP to
	// find its rate on most paths, and a bounded cost.
	loadTime  = time.Second
	loadBytes = 32 << 20
	// loadGrace is how long the receiver waits for what is still under way on a slow path. The sender
	// waits for its answer for as long again.
	loadGrace = 2 * time.Second
	// A measurement is two loads, one each way; a peer may have one in 10 s.
	loadRate  = rate.Limit(0.2)
	loadBurst = 2
	loadChunk = 64 << 10
)

// loadAnswer says how much of a load arrived.
type loadAnswer struct {
	spoken
	Bytes int64 `json:"bytes" max:"33554432"`
	// Seconds from the first byte to the last.
	Seconds float64 `json:"seconds" max:"3"`
}

// Load is what was carried in one direction.
type Load struct {
	Bytes int64
	Took  time.Duration
	// whole: it was read to its end, not to a deadline.
	whole bool
}

// BitsPerSecond is 0 when nothing was carried.
func (l Load) BitsPerSecond() float64 {
	if l.Took <= 0 {
		return 0
	}
	return float64(8*l.Bytes) / l.Took.Seconds()
}

// alone allows one load at a time: two would measure each other.
func (s *Server) alone(do func() (any, error)) (any, error) {
	select {
	case s.limits.load <- struct{}{}:
		defer func() { <-s.limits.load }()
		return do()
	default:
		e := newError(codeBusy, "another peer's throughput is being measured")
		e.RetryAfter = retryAfterBusy
		return nil, e
	}
}

// giveLoad sends a load. The peer counts what arrives.
func (s *Server) giveLoad(_ context.Context, c *call, _ nothing) (any, error) {
	return s.alone(func() (any, error) {
		if err := http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(loadTime + loadGrace)); err != nil {
			return nil, fmt.Errorf("send a load: %w", err)
		}
		c.w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.Copy(c.w, newLoad())
		return nil, nil
	})
}

// throughput receives a load, and returns how much arrived. It keeps nothing.
func (s *Server) throughput(_ context.Context, c *call, _ stream) (any, error) {
	var got Load
	_, err := s.alone(func() (any, error) {
		if err := http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(loadTime + loadGrace)); err != nil {
			return nil, fmt.Errorf("take a load: %w", err)
		}
		var err error
		if got, err = measure(c.r.Body); err != nil {
			return nil, newError(codeBadRequest, "the load did not arrive whole")
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	answer := loadAnswer{spoken: speaks, Bytes: got.Bytes, Seconds: min(got.Took, loadTime+loadGrace).Seconds()}
	if got.whole {
		return answer, nil
	}
	return nil, answerAndDrain(c.w, answer)
}

// answerAndDrain answers a request of which some is still under way. To close the connection at once
// would reset it, and the answer could be lost (RFC 9112, section 9.6). So what still comes is
// discarded until the caller closes, for at most loadGrace.
func answerAndDrain(w http.ResponseWriter, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("answer a load: %w", err)
	}
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+len("\n")))
	writeJSON(w, http.StatusOK, json.RawMessage(body))
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		return nil // the peer has gone
	}
	conn, _, err := rc.Hijack()
	if err != nil {
		return fmt.Errorf("answer a load: %w", err)
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(loadGrace)) == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
	return nil
}

// load is a reader of zeros that ends by itself.
type load struct {
	until time.Time
	left  int
}

func newLoad() *load { return &load{left: loadBytes} }

// Read returns zeros until the load is over. It begins with the first Read, not with the connection.
func (l *load) Read(b []byte) (int, error) {
	if l.until.IsZero() {
		l.until = time.Now().Add(loadTime)
	}
	if l.left <= 0 || !time.Now().Before(l.until) {
		return 0, io.EOF
	}
	n := min(len(b), l.left)
	clear(b[:n])
	l.left -= n
	return n, nil
}

// measure reads a load to its end, or to the deadline if the path is too slow for all of it.
func measure(r io.Reader) (Load, error) {
	buffer := make([]byte, loadChunk)
	var l Load
	var first, last time.Time
	for {
		// Reading a chunked body waits for as much as was asked for, so ask for little at first.
		n, err := r.Read(buffer[:min(len(buffer), 1<<10+int(l.Bytes))])
		if n > 0 {
			last = time.Now()
			if first.IsZero() { // what came with the first read took an unknown time
				first = last
			} else {
				l.Bytes += int64(n)
			}
			l.Took = last.Sub(first)
		}
		switch {
		case errors.Is(err, io.EOF):
			l.whole = true
			return l, nil
		case l.Bytes > 0 && timedOut(err):
			l.Took = time.Since(first) // a path that stands still after a burst is not fast
			return l, nil
		case err != nil:
			return l, err
		}
	}
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// Throughput measures what the path carries to the peer and from it, for a second each. A gateway
// that does not support it answers an ErrRequest, one that has just done it an ErrRateLimited.
func (c *Client) Throughput(ctx context.Context) (to, from Load, err error) {
	if to, err = c.sendLoad(ctx); err != nil {
		return to, from, err
	}
	from, err = c.takeLoad(ctx)
	return to, from, err
}

// sendLoad makes the peer report what arrived: some may still be in flight.
func (c *Client) sendLoad(ctx context.Context) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime+2*loadGrace)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+pathThroughput, newLoad())
	if err != nil {
		return Load{}, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Expect", "100-continue") // a refusal would be lost behind what is sent meanwhile
	var out loadAnswer
	if err := c.send(ctx, req, func(resp *http.Response) error { return c.read(resp, smallBody, &out) }); err != nil {
		return Load{}, err
	}
	return measured(Load{Bytes: out.Bytes, Took: time.Duration(out.Seconds * float64(time.Second))})
}

// measured refuses an empty load, which shows no rate.
func measured(l Load) (Load, error) {
	if l.Bytes <= 0 {
		return Load{}, fmt.Errorf("%w: too little arrived in time", ErrUnreachable)
	}
	return l, nil
}

func (c *Client) takeLoad(ctx context.Context) (Load, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime+loadGrace)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+pathThroughput, http.NoBody)
	if err != nil {
		return Load{}, fmt.Errorf("make request: %w", err)
	}
	var l Load
	err = c.send(ctx, req, func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return c.read(resp, 0, nil)
		}
		var err error
		l, err = measure(io.LimitReader(resp.Body, loadBytes))
		if err != nil {
			return c.unreachable(err)
		}
		l, err = measured(l)
		return err
	})
	return l, err
}
