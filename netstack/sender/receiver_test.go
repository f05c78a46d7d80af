package sender

import "slices"

// receiver is a TCP receiver (RFC 9293 §3.10.7.4, RFC 2018 §4) that can misbehave.
type receiver struct {
	next   Seq
	held   []Range // out of order, the last changed first
	read   int64   // bytes received in order
	buffer int     // bytes; the announced window is this less what is unread
	unread int
	twice  Range // the last duplicate, to report by D-SACK (RFC 2883)
	dsack  bool
}

// take accepts a segment, as far as there is room.
func (p *receiver) take(r Range) {
	if room := p.next + Seq(p.window()); room.Before(r.End) {
		r.End = room
	}
	p.twice = Range{}
	if !r.Start.Before(r.End) || !p.next.Before(r.End) {
		p.twice = r
		return
	}
	if p.next.Before(r.Start) {
		for _, h := range p.held {
			if !r.Start.Before(h.Start) && !h.End.Before(r.End) {
				p.twice = r
			}
		}
		p.hold(r)
		return
	}
	p.advance(r.End)
	for again := true; again; {
		again = false
		for i, h := range p.held {
			if p.next.Before(h.Start) {
				continue
			}
			if p.next.Before(h.End) {
				p.advance(h.End)
			}
			p.held = slices.Delete(p.held, i, i+1)
			again = true
			break
		}
	}
}

func (p *receiver) advance(to Seq) {
	n := p.next.To(to)
	p.read += int64(n)
	p.next = to
}

func (p *receiver) hold(r Range) {
	kept := p.held[:0]
	for _, h := range p.held {
		if h.End.Before(r.Start) || r.End.Before(h.Start) {
			kept = append(kept, h)
			continue
		}
		if h.Start.Before(r.Start) {
			r.Start = h.Start
		}
		if r.End.Before(h.End) {
			r.End = h.End
		}
	}
	p.held = slices.Insert(kept, 0, r)
}

// window returns the room beyond next.
func (p *receiver) window() int { return max(p.buffer-p.unread, 0) }

// ack returns its acknowledgement, with at most that many blocks.
func (p *receiver) ack(blocks int) Ack {
	a := Ack{Ack: p.next, Window: p.window()}
	if p.dsack && p.twice.Size() > 0 {
		a.Blocks = append(a.Blocks, p.twice)
	}
	a.Blocks = append(a.Blocks, p.held[:min(blocks, len(p.held))]...)
	return a
}
