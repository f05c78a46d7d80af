package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// echoService is cloud's service for the transfer, at the port of RFC 862.
const (
	echoService = "echo"
	echoPort    = 7
)

// A transfer sends a block every blockEvery (0.8 MB/s), so that a small machine has time for the
// gateways, and is at most window bytes ahead of what came back.
const (
	blockSize  = 16 << 10
	blockEvery = 20 * time.Millisecond
	window     = 128 << 10
	// flow is how much must come back to prove that bytes flow: more than can be in flight.
	flow = 2 * window
	// attempt bounds the time until the first block of a new connection is back.
	attempt = 5 * time.Second
)

// transfer is a client that sends bytes to an echo server behind the peer's gateway, through a
// local listener, and verifies what comes back. When its connection ends it makes another, and
// continues after the last verified block.
type transfer struct {
	address string
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	verified    int64
	last        time.Time     // when something last came back
	pause       time.Duration // the longest pause since measure
	connections int
	err         error // bytes that differ; this ends the transfer
}

func startTransfer(address string) *transfer {
	ctx, cancel := context.WithCancel(context.Background())
	t := &transfer{address: address, cancel: cancel, last: time.Now()}
	t.running.Go(func() { t.run(ctx) })
	return t
}

// Close ends the transfer.
func (t *transfer) Close() error {
	t.cancel()
	t.running.Wait()
	return t.err
}

func (t *transfer) run(ctx context.Context) {
	ticker := time.NewTicker(blockEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := t.connection(ctx, ticker.C)
		if errors.Is(err, errDiffers) {
			t.mu.Lock()
			t.err = err
			t.mu.Unlock()
			return
		}
		select { // retry a listener that refuses only at intervals
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

var errDiffers = errors.New("what came back differs from what was sent")

// connection transfers over one connection until that ends.
func (t *transfer) connection(ctx context.Context, pace <-chan time.Time) error {
	dialer := net.Dialer{Timeout: attempt}
	conn, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.connections++
	first := t.verified / blockSize
	t.mu.Unlock()
	var both sync.WaitGroup
	connCtx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(connCtx, func() { conn.Close() })
	defer func() {
		cancel()
		if stop() {
			conn.Close()
		}
		both.Wait()
	}()
	if err := conn.SetReadDeadline(time.Now().Add(attempt)); err != nil {
		return err
	}
	both.Go(func() {
		defer cancel()
		t.send(connCtx, conn, first, pace)
	})
	return t.check(conn, first)
}

// send writes blocks from number n on.
func (t *transfer) send(ctx context.Context, conn net.Conn, n int64, pace <-chan time.Time) {
	for {
		select {
		case <-pace:
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		room := (n+1)*blockSize-t.verified <= window
		t.mu.Unlock()
		if !room {
			continue
		}
		if _, err := conn.Write(block(n)); err != nil {
			return
		}
		n++
	}
}

// check reads blocks from number n on.
func (t *transfer) check(conn net.Conn, n int64) error {
	got := make([]byte, blockSize)
	for ; ; n++ {
		for have := 0; have < blockSize; {
			k, err := conn.Read(got[have:])
			if k > 0 {
				t.heard()
			}
			have += k
			if err != nil {
				return err
			}
		}
		if !bytes.Equal(got, block(n)) {
			return fmt.Errorf("block %d of %d bytes: %w", n, blockSize, errDiffers)
		}
		t.mu.Lock()
		t.verified = (n + 1) * blockSize
		t.mu.Unlock()
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// block returns block n: no two are alike.
func block(n int64) []byte {
	var seed [32]byte
	for i := range 8 {
		seed[i] = byte(n >> (8 * i))
	}
	b := make([]byte, blockSize)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

func (t *transfer) heard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.pause = max(t.pause, now.Sub(t.last))
	t.last = now
}

// measure starts to look for the longest pause again; the current one counts.
func (t *transfer) measure() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause = 0
}

// longest returns the longest pause since measure.
func (t *transfer) longest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.pause, time.Since(t.last))
}

// progress returns the number of verified bytes, and of connections.
func (t *transfer) progress() (verified int64, connections int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verified, t.connections, t.err
}

// flows waits until bytes sent from now on have come back.
func (t *transfer) flows(ctx context.Context) error {
	start, _, _ := t.progress()
	return poll(ctx, func() (string, error) {
		now, connections, err := t.progress()
		if err == nil && now-start < flow {
			return fmt.Sprintf("the transfer stands still at %d bytes, %s since the last, connection %d",
				now, t.longest().Round(time.Millisecond), connections), nil
		}
		return "", err
	})
}

// echo is the server of the transfers. It sends back what it receives.
type echo struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func startEcho(ctx context.Context) (*echo, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the echo service: %w", err)
	}
	life, cancel := context.WithCancel(context.Background())
	e := &echo{listener: l, cancel: cancel}
	e.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(life, func() { c.Close() })
			e.running.Go(func() {
				defer stop()
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	return e, nil
}

// Close closes the server and all its connections.
func (e *echo) Close() error {
	err := e.listener.Close()
	e.cancel()
	e.running.Wait()
	return err
}
