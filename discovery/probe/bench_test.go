package probe

import (
	"testing"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// BenchmarkReject measures the cost of a packet that gets no answer.
func BenchmarkReject(b *testing.B) {
	from, to := newPair(b)
	replayed := from.request(RequestOptions{})
	to.takes(replayed, Request)
	stranger := from.request(RequestOptions{})
	stranger[24] ^= 1
	forged := from.request(RequestOptions{})
	forged[len(forged)-1] ^= 1
	answer, err := stunwire.BindingResponse(stunwire.NewTxID(), source)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		packet []byte
	}{{"noise", make([]byte, 80)}, {"stranger", stranger}, {"answer", answer}, {"forged", forged}, {"replayed", replayed}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, _ := to.Handle(c.packet, source); r.Kind != Drop {
					b.Fatal("taken")
				}
			}
		})
	}
}

// BenchmarkExchange measures a request, its answer, and the answer's handling.
func BenchmarkExchange(b *testing.B) {
	from, to := newPair(b)
	b.ReportAllocs()
	for b.Loop() {
		exchange(from, to)
	}
}
