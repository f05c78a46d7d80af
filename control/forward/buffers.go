package forward

import "sync"

// Sizes of copy buffers in bytes. Through both gateways' stacks (BenchmarkThroughTheTunnel,
// median of three runs by turns on 2 busy cores) 32 KB carried 634 MB/s, 64 KB 671, 128 KB
// 763 and 256 KB 718: the cost of a call is spread, and no more comes at once. 4 KB halves
// the throughput (BenchmarkCopyBuffer) and is what an idle connection waits on.
const (
	smallBuffer = 4 << 10
	largeBuffer = 128 << 10
)

// buffers lends memory for copying. Large buffers are bounded in sum and per peer; small
// ones are bounded by the number of flows.
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

// getLarge lends a large buffer on the peer's account, or nil when that or the sum is
// used up.
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

// putLarge takes a large buffer back.
func (b *buffers) putLarge(peer string, buf *[]byte) {
	b.large.Put(buf)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lent -= largeBuffer
	if b.peer[peer] -= largeBuffer; b.peer[peer] == 0 {
		delete(b.peer, peer)
	}
}
