package netstack

import (
	"io"
	"sync"
	"testing"
	"time"
)

// BenchmarkTransfer moves 64 MB an iteration from one stack to the other through the
// in-test pipe: everything but WireGuard's own work.
func BenchmarkTransfer(b *testing.B) {
	b.Run("one-stream", func(b *testing.B) { benchmarkTransfer(b, 1) })
	b.Run("four-streams", func(b *testing.B) { benchmarkTransfer(b, 4) })
}

func benchmarkTransfer(b *testing.B, streams int) {
	const total = 64 << 20
	p := newPair(b, Options{}, Options{}, impairment{})
	var clients, servers []*Conn
	for range streams {
		c, s := p.connect(b, b6)
		_ = c.SetDeadline(time.Time{})
		_ = s.SetDeadline(time.Time{})
		clients, servers = append(clients, c), append(servers, s)
	}
	chunk := make([]byte, 256<<10)
	b.SetBytes(total)
	for b.Loop() {
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() {
				for sent := 0; sent < total/streams; sent += len(chunk) {
					if _, err := clients[i].Write(chunk); err != nil {
						b.Errorf("write: %v", err)
						return
					}
				}
			})
			wg.Go(func() {
				if _, err := io.CopyN(io.Discard, onlyReader{servers[i]}, total/int64(streams)); err != nil {
					b.Errorf("read: %v", err)
				}
			})
		}
		wg.Wait()
	}
	b.StopTimer()
	st := p.a.Stats()
	b.ReportMetric(float64(st.TCPRetransmits)/float64(b.N), "retransmits/op")
}

// onlyReader reads 256 KB at a time, as Conn.WriteTo does, but stops where it is told.
type onlyReader struct{ c *Conn }

func (r onlyReader) Read(b []byte) (int, error) { return r.c.Read(b) }
