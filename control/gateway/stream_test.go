package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
)

func listen(t *testing.T, address string) (net.Listener, error) {
	t.Helper()
	var lc net.ListenConfig
	return lc.Listen(t.Context(), "tcp", address)
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// echoServer sends back what it gets, on a loopback port, until the test ends.
func echoServer(t *testing.T) (address string) {
	t.Helper()
	ln, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveEcho(t, ln)
	return ln.Addr().String()
}

func serveEcho(t *testing.T, ln net.Listener) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
}

// stream is a connection to an echo server somewhere behind a gateway.
type stream struct {
	net.Conn
	t *testing.T
}

// open connects to a local listener and has something echoed.
func (w *world) open(address string) *stream {
	w.t.Helper()
	var s *stream
	w.await("a stream through "+address+" works", func() string {
		c, err := dial(w.ctx, address)
		if err != nil {
			return err.Error()
		}
		s = &stream{c, w.t}
		if err := s.echo("hello"); err != nil {
			c.Close()
			return err.Error()
		}
		return ""
	})
	w.t.Cleanup(func() { s.Close() })
	return s
}

// echo sends a word and reads it back.
func (s *stream) echo(word string) error {
	if err := s.SetDeadline(time.Now().Add(patience.Left())); err != nil {
		return err
	}
	if _, err := io.WriteString(s, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(s, b); err != nil {
		return err
	}
	if string(b) != word {
		return fmt.Errorf("got %q back, want %q", b, word)
	}
	return nil
}

// resetWithin fails unless the stream ends in time while nothing is sent.
func (s *stream) resetWithin(limit time.Duration) {
	s.t.Helper()
	start := time.Now()
	if err := s.SetReadDeadline(start.Add(patience.Left())); err != nil {
		s.t.Fatal(err)
	}
	_, err := s.Read(make([]byte, 1))
	var timeout net.Error
	if took := time.Since(start); err == nil || errors.As(err, &timeout) && timeout.Timeout() || took > limit {
		s.t.Errorf("the stream did not end within %s: %v after %s", limit, err, took)
	}
}
