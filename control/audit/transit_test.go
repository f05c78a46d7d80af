package audit

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// stalled is an output that blocks until it is released.
type stalled struct {
	bytes.Buffer
	entered chan struct{} // one for each record whose writing has begun
	release chan struct{}
	written chan struct{} // one for each written record
}

func (s *stalled) Write(p []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.release
	defer func() { s.written <- struct{}{} }()
	return s.Buffer.Write(p)
}

func TestAStalledLogHoldsNoPacketUp(t *testing.T) {
	const lost = 7
	out := &stalled{entered: make(chan struct{}, 1+transitQueue), release: make(chan struct{}), written: make(chan struct{}, 1+transitQueue)}
	l := NewTransitLog(New(slog.New(slog.NewTextHandler(out, nil))), func(netip.Addr) string { return "mallory" })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	defer running.Wait()
	defer cancel()

	src, dst := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	reported := make(chan struct{})
	go func() { // like WireGuard's receiving goroutine
		defer close(reported)
		l.Report(src, dst)
		<-out.entered // this one is being written, and the queue is empty
		for range transitQueue + lost {
			l.Report(src, dst)
		}
	}()
	<-reported // reports do not wait for the log
	close(out.release)
	for range 1 + transitQueue { // the reports that were not lost
		<-out.written
	}
	cancel()
	running.Wait()
	if n := l.dropped.Load(); n != 0 {
		t.Errorf("%d lost reports were not counted in any record", n)
	}
	if text := out.String(); !strings.Contains(text, "count=8") || !strings.Contains(text, "peer=mallory") || !strings.Contains(text, dst.String()) {
		t.Errorf("the log does not count the 7 lost reports about mallory:\n%s", text)
	}
}
