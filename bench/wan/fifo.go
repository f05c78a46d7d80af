package wan

import "time"

const (
	// blockSize is the size of the memory blocks that contain packets, in bytes: some hundred
	// full packets.
	blockSize = 1 << 20
	// runPackets and runBytes are what every kernel with UDP_SEGMENT sends in one call: 64
	// datagrams (UDP_MAX_SEGMENTS before Linux 6.9), in a frame of less than 65536 bytes: it cuts a
	// larger one before it sends it.
	runPackets = 64
	runBytes   = 65535 - 14 - 20 - 8
)

// fifo is a queue of packets, each with the time at which it is due. Packets are stored in blocks
// in the order of arrival, so that adjacent packets of one size are contiguous. Empty blocks are
// reused.
type fifo struct {
	packets []stored // a ring
	head    int
	count   int

	blocks []*block // those with packets; the last one is being filled
	spare  []*block
}

// stored is a packet: a part of a block.
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

// push appends a copy of a packet of 1 byte to 64 KiB.
func (q *fifo) push(packet []byte, tunnel int, due time.Duration) {
	b := q.blockFor(len(packet))
	if q.count == len(q.packets) {
		q.grow()
	}
	q.packets[(q.head+q.count)%len(q.packets)] = stored{due, tunnel, len(packet), b, b.used}
	q.count++
	b.used += copy(b.memory[b.used:], packet)
}

// blockFor returns a block with enough room.
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

// due returns when the first packet is due.
func (q *fifo) due() (time.Duration, bool) {
	if q.count == 0 {
		return 0, false
	}
	return q.packets[q.head].due, true
}

// pop removes a run of a tunnel's packets that are due and contiguous: all of one size, except
// that the last may be shorter. The memory is valid until the next call.
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

// recycle reuses the blocks before that of the first packet. The last block is being filled, even
// if it is empty.
func (q *fifo) recycle() {
	for len(q.blocks) > 1 && (q.count == 0 || q.packets[q.head].block != q.blocks[0]) {
		q.spare = append(q.spare, q.blocks[0])
		q.blocks = q.blocks[1:]
	}
}
