package wan

import "time"

const (
	// blockSize is the memory that packets are put in one after the other, in bytes: some
	// hundred full ones.
	blockSize = 1 << 20
	// runPackets and runBytes are what every kernel with UDP_SEGMENT takes in one call: 64
	// datagrams (UDP_MAX_SEGMENTS before Linux 6.9), and the greatest UDP payload over
	// IPv4, 65535 - 20 - 8 bytes.
	runPackets = 64
	runBytes   = 65507
)

// fifo is a queue of packets, each with the time at which it leaves. Packets lie in
// blocks in the order of arrival, so that neighbours of one size are one piece of memory.
// Blocks that have been emptied are used again.
type fifo struct {
	packets []stored // A ring.
	head    int
	count   int

	blocks []*block // Those with packets, and the one being filled, which is the last.
	spare  []*block
}

// stored is a packet: a piece of a block.
type stored struct {
	due    time.Duration
	tunnel int
	size   int
	block  *block
	at     int
}

type block struct {
	memory [blockSize]byte
	used   int
}

// push appends a copy of a packet, which is not empty and no longer than 64 KiB.
func (q *fifo) push(packet []byte, tunnel int, due time.Duration) {
	b := q.blockFor(len(packet))
	if q.count == len(q.packets) {
		q.grow()
	}
	q.packets[(q.head+q.count)%len(q.packets)] = stored{due, tunnel, len(packet), b, b.used}
	q.count++
	b.used += copy(b.memory[b.used:], packet)
}

// blockFor is one with room.
func (q *fifo) blockFor(size int) *block {
	if n := len(q.blocks); n > 0 && q.blocks[n-1].used+size <= blockSize {
		return q.blocks[n-1]
	}
	b := new(block)
	if n := len(q.spare); n > 0 {
		b, q.spare = q.spare[n-1], q.spare[:n-1]
		b.used = 0
	}
	q.blocks = append(q.blocks, b)
	return b
}

func (q *fifo) grow() {
	bigger := make([]stored, max(1024, 2*len(q.packets)))
	for i := range q.count {
		bigger[i] = q.packets[(q.head+i)%len(q.packets)]
	}
	q.packets, q.head = bigger, 0
}

// due is the first packet's time.
func (q *fifo) due() (time.Duration, bool) {
	if q.count == 0 {
		return 0, false
	}
	return q.packets[q.head].due, true
}

// pop takes a run of a tunnel's packets that are due and lie together: of one size, only
// the last may be shorter. The memory is valid until the next call.
func (q *fifo) pop(until time.Duration) (run []byte, size, tunnel, n int) {
	q.recycle()
	if q.count == 0 || q.packets[q.head].due > until {
		return nil, 0, 0, 0
	}
	first := q.packets[q.head]
	end := first.at
	for q.count > 0 && n < runPackets {
		p := q.packets[q.head]
		if p.due > until || p.tunnel != first.tunnel || p.block != first.block || p.size > first.size || end+p.size-first.at > runBytes {
			break
		}
		end += p.size
		n++
		q.head = (q.head + 1) % len(q.packets)
		q.count--
		if p.size < first.size {
			break
		}
	}
	return first.block.memory[first.at:end], first.size, first.tunnel, n
}

// recycle keeps the blocks before the first packet's for use again. The last one is being
// filled, even when it is empty.
func (q *fifo) recycle() {
	for len(q.blocks) > 1 && (q.count == 0 || q.packets[q.head].block != q.blocks[0]) {
		q.spare = append(q.spare, q.blocks[0])
		q.blocks = q.blocks[1:]
	}
}
