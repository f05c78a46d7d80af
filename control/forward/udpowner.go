package forward

import "net/netip"

// udpOwner is a peer in one direction, whose flows are counted together. The table owns it.
type udpOwner struct {
	share
	account
	bytes   uint64                // carried, by ended ones too
	waiting int                   // bytes that wait for flows to be opened
	lists   [talking + 1]flowList // by phase
}

// clientOf returns the client as whose a flow is counted; may be none.
func (o *udpOwner) clientOf(f *udpFlow) netip.Addr {
	if c, outbound := f.side.(*udpClient); outbound && o.class != unadmitted {
		return c.local().out.client(c.from.Addr())
	}
	return netip.Addr{}
}

// maxWaiting bounds waiting.
func (o *udpOwner) maxWaiting() int {
	if o.class == unadmitted {
		return maxUnadmittedWaiting
	}
	return maxOwnerWaiting
}

func (o *udpOwner) all() []*udpFlow {
	out := make([]*udpFlow, 0, o.flows)
	for _, l := range o.lists {
		for f := l.first; f != nil; f = f.next {
			out = append(out, f)
		}
	}
	return out
}

// flowList is sorted by last use, the least recently used flow first.
type flowList struct{ first, last *udpFlow }

func (l *flowList) push(f *udpFlow) {
	f.prev, f.next = l.last, nil
	if l.last != nil {
		l.last.next = f
	} else {
		l.first = f
	}
	l.last = f
}

func (l *flowList) remove(f *udpFlow) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.last = f.prev
	}
	f.prev, f.next = nil, nil
}
