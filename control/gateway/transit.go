package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"github.com/postern-dev/postern/control/audit"
)

// transitQueue is how many reports may wait to be recorded. netstack gives at most one a
// second and source, so only a log that stands still fills it.
const transitQueue = 64

// transitLog records the packets by which one peer tries to reach another through us. It
// is told of them on WireGuard's receiving goroutine, which must not wait for a log: a
// report that finds the queue full is dropped and counted.
type transitLog struct {
	audit   *audit.Log
	whose   func(netip.Addr) string
	queue   chan transit
	dropped atomic.Uint64
}

type transit struct{ src, dst netip.Addr }

// newTransitLog makes a log that run writes; whose names the peer of an address.
func newTransitLog(a *audit.Log, whose func(netip.Addr) string) *transitLog {
	return &transitLog{audit: a, whose: whose, queue: make(chan transit, transitQueue)}
}

// report never blocks.
func (l *transitLog) report(src, dst netip.Addr) {
	select {
	case l.queue <- transit{src, dst}:
	default:
		l.dropped.Add(1)
	}
}

// run records until ctx ends.
func (l *transitLog) run(ctx context.Context) {
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
func (l *transitLog) record(ctx context.Context, t transit) {
	attrs := []slog.Attr{audit.Peer(l.whose(t.src)), audit.Reason("sent a packet for " + t.dst.String() +
		", which is not this gateway: nothing is carried from one peer to another")}
	if n := l.dropped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Uint64(audit.KeyCount, n+1))
	}
	l.audit.Record(ctx, audit.Refuse, attrs...)
}
