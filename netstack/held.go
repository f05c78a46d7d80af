package netstack

import (
	"sort"

	"github.com/postern-dev/postern/netstack/sender"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// heldSegment is an unacknowledged segment from gVisor, with its own reference. gVisor keeps the
// same memory for as long, so it costs little more.
type heldSegment struct {
	sender.Range
	pkt     *stack.PacketBuffer
	payload int // its offset in pkt, in bytes
	push    bool
	fin     bool // the last sequence number is a FIN
}

// held is what a connection has sent or is about to send and the peer has not acknowledged: all of
// it may have to be sent again.
type held struct{ segments []heldSegment }

// add appends a segment, which starts where the last one ends.
func (h *held) add(s heldSegment) { h.segments = append(h.segments, s) }

// release drops whole segments before una.
func (h *held) release(una sender.Seq) {
	n := 0
	for ; n < len(h.segments) && !una.Before(h.segments[n].End); n++ {
		h.segments[n].pkt.DecRef()
		h.segments[n] = heldSegment{}
	}
	if h.segments = h.segments[n:]; len(h.segments) == 0 {
		h.segments = nil
	}
}

// releaseAll drops everything.
func (h *held) releaseAll() {
	for _, s := range h.segments {
		s.pkt.DecRef()
	}
	h.segments = nil
}

// read copies the len(dst) bytes of r to dst, and returns their flags: PSH with the last byte of a
// segment that has it, FIN with its own sequence number.
func (h *held) read(dst []byte, r sender.Range) (n int, flags byte) {
	i := sort.Search(len(h.segments), func(i int) bool { return r.Start.Before(h.segments[i].End) })
	for ; i < len(h.segments) && h.segments[i].Start.Before(r.End); i++ {
		s := &h.segments[i]
		from, to := max(s.Start.To(r.Start), 0), min(s.Start.To(r.End), s.Size())
		if to == s.Size() {
			if s.push {
				flags |= flagPSH
			}
			if s.fin {
				flags |= flagFIN
				to--
			}
		}
		n += s.copy(dst[n:], from, to)
	}
	return n, flags
}

// copy copies the payload between two offsets.
func (s *heldSegment) copy(dst []byte, from, to int) (n int) {
	list, skip := s.pkt.AsViewList()
	skip += s.payload + from
	dst = dst[:min(len(dst), to-from)]
	for v := list.Front(); v != nil && n < len(dst); v = v.Next() {
		b := v.AsSlice()
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		n += copy(dst[n:], b[skip:])
		skip = 0
	}
	return n
}
