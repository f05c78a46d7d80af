package sender

// quantum is what a flow may send in its turn, in bytes: two packets of the usual size, so
// that a packet of any size fits two turns.
const quantum = 2 * 1500

// Turns shares one peer's path between its flows: deficit round robin (Shreedhar and
// Varghese, 1995), with flows first that have just begun to send (RFC 8290 §4.1). So bulk
// flows share evenly by bytes, and one that sends little never waits for more than one
// turn of each other that sends little. F is what the user calls a flow. It is not safe
// for concurrent use.
type Turns[F comparable] struct {
	fresh, others fifo[turnOf[F]]
	in            map[F]struct{} // the flows of both
}

type turnOf[F comparable] struct {
	flow    F
	deficit int
}

// Wake takes in that a flow has something to send.
func (t *Turns[F]) Wake(flow F) {
	if _, is := t.in[flow]; is {
		return
	}
	if t.in == nil {
		t.in = make(map[F]struct{})
	}
	t.in[flow] = struct{}{}
	t.fresh.push(turnOf[F]{flow, quantum})
}

// Any reports whether a flow may have something to send.
func (t *Turns[F]) Any() bool { return len(t.in) > 0 }

// Remove forgets a flow.
func (t *Turns[F]) Remove(flow F) {
	if _, is := t.in[flow]; !is {
		return
	}
	delete(t.in, flow)
	is := func(o turnOf[F]) bool { return o.flow == flow }
	t.fresh.remove(is)
	t.others.remove(is)
}

// Next has send send one packet of the flow whose turn it is, until one does, and gives its size, in
// bytes; 0 if none has anything to send now. send gives the size of what it sent. A flow that
// sends nothing has to be woken again.
func (t *Turns[F]) Next(send func(F) int) int {
	for {
		list := &t.fresh
		if list.empty() {
			list = &t.others
		}
		if list.empty() {
			return 0
		}
		first := list.first()
		if first.deficit <= 0 {
			t.others.push(turnOf[F]{first.flow, first.deficit + quantum})
			list.pop(1)
			continue
		}
		if n := send(first.flow); n > 0 {
			first.deficit -= n
			return n
		}
		if list == &t.fresh { // Through the other list, or two that alternate would keep all others out.
			t.others.push(*first)
		} else {
			delete(t.in, first.flow)
		}
		list.pop(1)
	}
}
