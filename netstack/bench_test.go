package netstack

import (
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkTransfer moves 64 MB an iteration from one stack to the other through the
// in-test pipe: everything but WireGuard's own work.
func BenchmarkTransfer(b *testing.B) {
	for _, streams := range []int{1, 4} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			benchmarkTransfer(b, newPair(b, Options{}, Options{}, impairment{}), streams)
		})
	}
}

func benchmarkTransfer(b *testing.B, p pair, streams int) {
	const total = 64 << 20
	var clients, servers []*Conn
	for range streams {
		c, s := p.connect(b, b6)
		_ = c.SetDeadline(time.Time{})
		_ = s.SetDeadline(time.Time{})
		clients, servers = append(clients, c), append(servers, s)
	}
	chunk := make([]byte, 256<<10)
	b.SetBytes(total)
	cpu, before := cpuSeconds(), p.a.Stats().TCPRetransmits
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
	gigabytes := float64(b.N) * total / 1e9
	b.ReportMetric(float64(p.a.Stats().TCPRetransmits-before)/gigabytes, "retransmits/GB")
	b.ReportMetric((cpuSeconds()-cpu)/gigabytes, "cpu-s/GB")
}

// onlyReader reads 256 KB at a time, as Conn.WriteTo does, and hides WriteTo.
type onlyReader struct{ c *Conn }

func (r onlyReader) Read(b []byte) (int, error) { return r.c.Read(b) }

// cpuSeconds returns the process' CPU time, which says more than the elapsed time on a busy
// machine.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
