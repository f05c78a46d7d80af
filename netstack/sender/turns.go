package sender

// quantum is how many bytes a flow may send in its turn: two packets of the usual size, so that a
// packet of any size fits into two turns.
const quantum = 2 * 1500

// Turns shares one peer's path between its flows by deficit round robin (Shreedhar and Varghese,
// 1995). Flows that have just begun to send come first (RFC 8290 §4.1). So bulk flows get equal
// shares of bytes, and a flow that sends little waits for at most one turn of each other such flow.
// F identifies a flow. Turns is not safe for concurrent use.
type Turns[F comparable] struct {
	fresh, others fifo[turnOf[F]]
	in            map[F]struct{} // the flows of both
}

type turnOf[F comparable] struct {
	flow    F
	deficit int
}

// Wake records that a flow has something to send.
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

// Remove removes a flow.
func (t *Turns[F]) Remove(flow F) {
	if _, is := t.in[flow]; !is {
		return
	}
	delete(t.in, flow)
	is := func(o turnOf[F]) bool { return o.flow == flow }
	t.fresh.remove(is)
	t.others.remove(is)
}

// Next calls send for the flow whose turn it is, until one sends a packet. send returns the size of
// what it sent, in bytes, and so does Next; 0 if no flow has anything to send. A flow that sends
// nothing must be woken again.
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
		if list == &t.fresh { // To the other list, or two flows that alternate starve the rest.
			t.others.push(*first)
		} else {
			delete(t.in, first.flow)
		}
		list.pop(1)
	}
}
