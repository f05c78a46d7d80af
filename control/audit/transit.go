package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
)

// transitQueue is how many reports may wait to be recorded. netstack gives at most one a
// second and source, so only a log that stands still fills it.
const transitQueue = 64

// TransitLog records the packets by which one peer tries to reach another through us. It
// is told of them on WireGuard's receiving goroutine, which must not wait for a log: a
// report that finds the queue full is dropped and counted.
type TransitLog struct {
	log     *Log
	whose   func(netip.Addr) string
	queue   chan transit
	dropped atomic.Uint64
}

type transit struct{ src, dst netip.Addr }

// NewTransitLog makes a log that run writes; whose names the peer of an address.
func NewTransitLog(a *Log, whose func(netip.Addr) string) *TransitLog {
	return &TransitLog{log: a, whose: whose, queue: make(chan transit, transitQueue)}
}

// Report never blocks.
func (l *TransitLog) Report(src, dst netip.Addr) {
	select {
	case l.queue <- transit{src, dst}:
	default:
		l.dropped.Add(1)
	}
}

// Run records until ctx ends.
func (l *TransitLog) Run(ctx context.Context) {
	for {
		select {
		case t := <-l.queue:
			l.record(ctx, t)
		case <-ctx.Done():
			return
		}
	}
}

// record says also of how many packets it tells, if others were lost before.
func (l *TransitLog) record(ctx context.Context, t transit) {
	attrs := []slog.Attr{Peer(l.whose(t.src)), Reason("sent a packet for " + t.dst.String() +
		", which is not this gateway: nothing is carried from one peer to another")}
	if n := l.dropped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Uint64(KeyCount, n+1))
	}
	l.log.Record(ctx, Refuse, attrs...)
}
