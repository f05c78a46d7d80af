package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
)

// transitQueue is how many reports may wait to be recorded. netstack sends at most one each
// second for each source, so the queue only fills if the log blocks.
const transitQueue = 64

// TransitLog records packets by which one peer tries to reach another through this gateway.
// Report is called on WireGuard's receiving goroutine, which must not wait for a log: if the
// queue is full, it drops and counts the report.
type TransitLog struct {
	log     *Log
	whose   func(netip.Addr) string
	queue   chan transit
	dropped atomic.Uint64
}

type transit struct{ src, dst netip.Addr }

// NewTransitLog returns a log; whose returns the peer's name for an address. Run must be called.
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

// record writes a report, with the number of reports lost before it.
func (l *TransitLog) record(ctx context.Context, t transit) {
	attrs := []slog.Attr{Peer(l.whose(t.src)), Reason("sent a packet for " + t.dst.String() +
		", which is not this gateway: nothing is carried from one peer to another")}
	if n := l.dropped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Uint64(KeyCount, n+1))
	}
	l.log.Record(ctx, Refuse, attrs...)
}
