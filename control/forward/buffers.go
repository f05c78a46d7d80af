package forward

import "sync"

// Sizes of copy buffers in bytes. Through both gateways' stacks (BenchmarkThroughTheTunnel, median
// of three alternating runs on 2 busy cores) 32 KB carried 634 MB/s, 64 KB 671, 128 KB 763 and 256
// KB 718: by then the cost of a call is negligible, and no more data arrives at once. 4 KB halves
// the throughput (BenchmarkCopyBuffer). Idle connections wait with that.
const (
	smallBuffer = 4 << 10
	largeBuffer = 128 << 10
)

// buffers lends memory for copying. Large buffers are limited in total and per peer; small ones are
// limited by the number of flows.
type buffers struct {
	total, perPeer int // bytes

	small, large sync.Pool // of *[]byte

	mu   sync.Mutex
	lent int
	peer map[string]int
}

func newBuffers(total, perPeer int) *buffers {
	alloc := func(n int) func() any {
		return func() any { b := make([]byte, n); return &b }
	}
	return &buffers{total: total, perPeer: perPeer, peer: make(map[string]int),
		small: sync.Pool{New: alloc(smallBuffer)}, large: sync.Pool{New: alloc(largeBuffer)}}
}

// getLarge lends a large buffer from the peer's share, or returns nil if that or the total is used
// up.
func (b *buffers) getLarge(peer string) *[]byte {
	b.mu.Lock()
	if b.lent+largeBuffer > b.total || b.peer[peer]+largeBuffer > b.perPeer {
		b.mu.Unlock()
		return nil
	}
	b.lent += largeBuffer
	b.peer[peer] += largeBuffer
	b.mu.Unlock()
	return b.large.Get().(*[]byte)
}

// putLarge returns a large buffer.
func (b *buffers) putLarge(peer string, buf *[]byte) {
	b.large.Put(buf)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lent -= largeBuffer
	if b.peer[peer] -= largeBuffer; b.peer[peer] == 0 {
		delete(b.peer, peer)
	}
}
