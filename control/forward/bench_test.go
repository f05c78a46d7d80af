package forward

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// BenchmarkSplice moves 64 MB an iteration from one loopback connection to another, the
// kernel's share of the work included.
func BenchmarkSplice(b *testing.B) {
	const total = 64 << 20
	flows := NewFlows(Limits{})
	f, _ := flows.begin(DirectionInbound, "cloud", api.ServiceAPIServer, "r")
	source, left := tcpPair(b)
	right, sink := tcpPair(b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.splice(left, right)
		flows.end(f)
	}()
	move(b, source, sink, total)
	source.Close()
	sink.Close()
	<-done
}

// BenchmarkCopyBuffer is the measurement behind smallBuffer and largeBuffer: a plain
// copy between two loopback connections with one buffer.
func BenchmarkCopyBuffer(b *testing.B) {
	const total = 64 << 20
	for _, size := range []int{4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			source, left := tcpPair(b)
			right, sink := tcpPair(b)
			done := make(chan struct{})
			go func() {
				defer close(done)
				// Hidden behind plain interfaces, or the kernel would splice.
				_, _ = io.CopyBuffer(struct{ io.Writer }{right}, struct{ io.Reader }{left}, make([]byte, size))
			}()
			move(b, source, sink, total)
			source.Close()
			<-done
		})
	}
}

// BenchmarkThroughTheTunnel moves 64 MB an iteration from a local client through both
// gateways' stacks to an upstream: all but WireGuard.
func BenchmarkThroughTheTunnel(b *testing.B) {
	address, conns := upstream(b)
	s := newSite(b, address)
	c := connect(b, s.local)
	server := take(b, conns)
	move(b, c, server, 64<<20)
}

// BenchmarkShortFlow opens, uses and ends a connection an iteration, through both stacks.
func BenchmarkShortFlow(b *testing.B) {
	address, conns := upstream(b)
	s := newSite(b, address)
	go func() {
		for c := range conns {
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	for b.Loop() {
		c := connect(b, s.local)
		send(b, c, "ping")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "ping" {
			b.Fatalf("got %q, %v", got, err)
		}
		c.Close()
	}
}

// move sends total bytes an iteration and waits for the last.
func move(b *testing.B, source, sink *net.TCPConn, total int64) {
	chunk := make([]byte, 256<<10)
	b.SetBytes(total)
	for b.Loop() {
		go func() {
			for sent := int64(0); sent < total; sent += int64(len(chunk)) {
				if _, err := source.Write(chunk); err != nil {
					b.Errorf("write: %v", err)
					return
				}
			}
		}()
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(sink, total), make([]byte, 256<<10)); err != nil {
			b.Fatal(err)
		}
	}
}
