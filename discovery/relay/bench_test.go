package relay_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
)

// BenchmarkRelayed sends full tunnel packets between two sockets of this machine: directly, and
// through allocations of both on one server in the same process, over each transport. The relayed
// path crosses three sockets and the server on the same cores. The ratio to the direct path is
// printed as "direct/relayed".
func BenchmarkRelayed(b *testing.B) {
	var direct float64
	b.Run("direct", func(b *testing.B) {
		from, to := realSocket(b), realSocket(b)
		at := to.LocalAddr().(*net.UDPAddr).AddrPort()
		direct = measure(b, func(p []byte) error { return from.WriteTo(p, at) }, to.others)
	})
	for _, transport := range []string{relay.TransportUDP, relay.TransportTCP, relay.TransportTLS} {
		b.Run(transport, func(b *testing.B) {
			l := newLoopback(b)
			from := start(b, relay.Options{Server: l.account(transport), Socket: realSocket(b)})
			to := start(b, relay.Options{Server: l.account(transport), Socket: realSocket(b)})
			near, far := from.allocated(b, nil), to.allocated(b, nil)
			exchange(b, func(s string) error { return from.trySend(near.ID, s, far.Relayed) }, to.inbox)
			drain(to.inbox)
			rate := measure(b, func(p []byte) error { return from.trySend(near.ID, string(p), far.Relayed) }, to.inbox)
			b.ReportMetric(direct/rate, "direct/relayed")
			from.stop()
			to.stop()
		})
	}
}

// measure sends b.N packets, with as many in flight as sockets hold, and returns the rate in
// bytes per second of what arrived.
func measure(b *testing.B, send func([]byte) error, inbox <-chan datagram) float64 {
	const size, window = 1452, 48
	packet := make([]byte, size)
	b.SetBytes(size)
	b.ReportAllocs()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	arrived, lost := 0, 0
	b.ResetTimer()
	for sent := 0; sent < b.N; {
		for ; sent < b.N && sent-arrived-lost < window; sent++ {
			if err := send(packet); err != nil {
				b.Fatal(err)
			}
		}
		select {
		case <-inbox:
			arrived++
		case <-time.After(200 * time.Millisecond):
			lost = sent - arrived
		case <-ctx.Done():
			b.Fatal("the packets take too long")
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(lost)/float64(b.N)*100, "lost_%")
	return float64(arrived*size) / b.Elapsed().Seconds()
}
