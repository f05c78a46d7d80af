package sender

import "slices"

// quantum is what a flow may send in its turn, in bytes: two packets of the usual size, so
// that a packet of any size fits two turns.
const quantum = 2 * 1500

// Turns shares one peer's path between its flows: deficit round robin (Shreedhar and
// Varghese, 1995), with flows first that have just begun to send (RFC 8290 §4.1). So bulk
// flows share evenly by bytes, and one that sends little never waits for more than one
// turn of each other that sends little. F is what the user calls a flow. It is not safe
// for concurrent use.
type Turns[F comparable] struct {
	fresh, others []turnOf[F]
}

type turnOf[F comparable] struct {
	flow    F
	deficit int
}

// Wake takes in that a flow has something to send.
func (t *Turns[F]) Wake(flow F) {
	is := func(o turnOf[F]) bool { return o.flow == flow }
	if !slices.ContainsFunc(t.fresh, is) && !slices.ContainsFunc(t.others, is) {
		t.fresh = append(t.fresh, turnOf[F]{flow, quantum})
	}
}

// Any reports whether a flow may have something to send.
func (t *Turns[F]) Any() bool { return len(t.fresh)+len(t.others) > 0 }

// Remove forgets a flow.
func (t *Turns[F]) Remove(flow F) {
	is := func(o turnOf[F]) bool { return o.flow == flow }
	t.fresh, t.others = slices.DeleteFunc(t.fresh, is), slices.DeleteFunc(t.others, is)
}

// Next has send send one packet of the flow whose turn it is, until one does, and gives its size, in
// bytes; 0 if none has anything to send now. send gives the size of what it sent. A flow that
// sends nothing has to be woken again.
func (t *Turns[F]) Next(send func(F) int) int {
	for {
		list, fresh := &t.fresh, true
		if len(*list) == 0 {
			list, fresh = &t.others, false
		}
		if len(*list) == 0 {
			return 0
		}
		first := &(*list)[0]
		if first.deficit <= 0 {
			turn := turnOf[F]{first.flow, first.deficit + quantum}
			*list = slices.Delete(*list, 0, 1)
			t.others = append(t.others, turn)
			continue
		}
		if n := send(first.flow); n > 0 {
			first.deficit -= n
			return n
		}
		idle := *first
		*list = slices.Delete(*list, 0, 1)
		if fresh { // Through the other list, or two that alternate would keep all others out.
			t.others = append(t.others, idle)
		}
	}
}
