package sender

import (
	"slices"
	"sort"
	"time"
)

// state is the state of a segment that isn't acknowledged. Its transitions:
//
//	        lose            resend
//	flying ------> missing --------> flying
//	   |              |
//	   | SACK         | SACK
//	   v              v
//	 sacked <---------+
//	   |  renege
//	   +-------> missing
type state uint8

const (
	flying  state = iota // believed to be on its way
	missing              // considered lost and not retransmitted since
	sacked               // the receiver has it, but may still discard it (RFC 2018 §8)
)

// segment is a packet that was sent and isn't acknowledged.
type segment struct {
	Range
	state    state
	resent   bool // more than one copy was sent
	lost     bool // counted as lost
	wait     wait // of the packet before it, when it was counted
	departed departure
}

// scoreboard tracks the state of each byte that was sent and isn't acknowledged (RFC 2018 §5, RFC
// 6675 §3). It knows no time and decides nothing.
//
// Selectively acknowledged bytes stay on it until they are cumulatively acknowledged: a receiver
// may have discarded them and need them again.
type scoreboard struct {
	una, nxt Seq
	segments fifo[segment] // from una up to nxt, without gaps
	known    []Range       // what SACK has reported, in order and not touching
	gone     []Seq         // where missing segments start, in order; some aren't missing any more

	flight  int // bytes in flight
	missing int // bytes that are missing
}

func newScoreboard(start Seq) scoreboard { return scoreboard{una: start, nxt: start} }

// send appends a new segment. The pointer is valid until the next call.
func (b *scoreboard) send(size int) *segment {
	b.segments.push(segment{Range: Range{b.nxt, b.nxt + Seq(size)}})
	b.nxt += Seq(size)
	b.flight += size
	all := b.segments.all()
	return &all[len(all)-1]
}

// index returns the index of the segment that contains a sequence number between una and nxt.
func (b *scoreboard) index(s Seq) int {
	all := b.segments.all()
	return sort.Search(len(all), func(i int) bool { return s.Before(all[i].End) })
}

// find returns the segment that starts at s, or nil.
func (b *scoreboard) find(s Seq) *segment {
	if s.Before(b.una) || !s.Before(b.nxt) {
		return nil
	}
	if g := &b.segments.all()[b.index(s)]; g.Start == s {
		return g
	}
	return nil
}

// acknowledge handles a cumulative acknowledgement between una and nxt. It calls delivered for each
// segment that the receiver wasn't known to have. It reports whether the receiver has discarded
// what it had selectively acknowledged: then it acknowledges everything up to such a segment, but
// not the segment itself (RFC 2018 §8).
func (b *scoreboard) acknowledge(ack Seq, delivered func(*segment)) (reneged bool) {
	n := 0
	for all := b.segments.all(); n < len(all) && !ack.Before(all[n].End); n++ {
		b.arrive(&all[n], delivered)
	}
	b.segments.pop(n)
	if b.segments.empty() {
		b.segments = fifo[segment]{} // Or an idle connection would keep its largest flight's memory.
	} else if g := b.segments.first(); g.Start.Before(ack) { // A part: the receiver had no room for all.
		b.account(g, -g.Start.To(ack))
		b.forget(g)
		g.Start = ack
		b.remember(g)
	}
	b.una = ack
	for len(b.known) > 0 && !ack.Before(b.known[0].End) {
		b.known = b.known[1:]
	}
	return !b.segments.empty() && b.segments.first().state == sacked
}

// arrive records that the receiver has a segment.
func (b *scoreboard) arrive(g *segment, delivered func(*segment)) {
	if g.state == sacked {
		return
	}
	b.account(g, -g.Size())
	delivered(g)
	g.state = sacked
}

// account adds n bytes of a segment to the counters.
func (b *scoreboard) account(g *segment, n int) {
	switch g.state {
	case flying:
		b.flight += n
	case missing:
		b.missing += n
	}
}

// selective handles one block of a selective acknowledgement. It ignores blocks that make no sense
// and those below the acknowledgement, which report duplicates (RFC 2883). It ignores all blocks
// while there are more pieces than segments. That costs only time.
func (b *scoreboard) selective(r Range, delivered func(*segment)) {
	if len(b.known) > len(b.segments.all()) || !b.una.Before(r.Start) || !r.Start.Before(r.End) || b.nxt.Before(r.End) || b.nxt.Before(r.Start) {
		return
	}
	i := sort.Search(len(b.known), func(i int) bool { return !b.known[i].End.Before(r.Start) })
	merged, at, j := r, r.Start, i
	for ; j < len(b.known) && !r.End.Before(b.known[j].Start); j++ {
		k := b.known[j]
		b.mark(Range{at, k.Start}, r, delivered)
		if at.Before(k.End) {
			at = k.End
		}
		if k.Start.Before(merged.Start) {
			merged.Start = k.Start
		}
		if merged.End.Before(k.End) {
			merged.End = k.End
		}
	}
	b.mark(Range{at, r.End}, r, delivered)
	b.known = slices.Replace(b.known, i, j, merged)
}

// mark marks the segments that news touches and that are now completely known. Two blocks may
// report one segment's halves.
func (b *scoreboard) mark(news, block Range, delivered func(*segment)) {
	if !news.Start.Before(news.End) {
		return
	}
	all := b.segments.all()
	for i := b.index(news.Start); i < len(all) && all[i].Start.Before(news.End); i++ {
		g := &all[i]
		if b.covers(g.Range, block) {
			b.arrive(g, delivered)
		}
	}
}

// covers reports whether block and the earlier blocks together contain all of r.
func (b *scoreboard) covers(r, block Range) bool {
	for at := r.Start; at.Before(r.End); {
		switch {
		case !at.Before(block.Start) && at.Before(block.End):
			at = block.End
		default:
			i := sort.Search(len(b.known), func(i int) bool { return at.Before(b.known[i].End) })
			if i == len(b.known) || at.Before(b.known[i].Start) {
				return false
			}
			at = b.known[i].End
		}
	}
	return true
}

// lose considers a flying segment lost.
func (b *scoreboard) lose(g *segment) {
	b.flight -= g.Size()
	b.missing += g.Size()
	g.state = missing
	b.remember(g)
}

// remember adds a segment to the list if it is missing.
func (b *scoreboard) remember(g *segment) {
	if g.state != missing {
		return
	}
	i := sort.Search(len(b.gone), func(i int) bool { return !b.gone[i].Before(g.Start) })
	if i == len(b.gone) || b.gone[i] != g.Start {
		b.gone = slices.Insert(b.gone, i, g.Start)
	}
}

// forget undoes remember.
func (b *scoreboard) forget(g *segment) {
	i := sort.Search(len(b.gone), func(i int) bool { return !b.gone[i].Before(g.Start) })
	if i < len(b.gone) && b.gone[i] == g.Start {
		b.gone = slices.Delete(b.gone, i, i+1)
	}
}

// firstMissing returns the first missing segment, or nil.
func (b *scoreboard) firstMissing() *segment {
	for len(b.gone) > 0 {
		if g := b.find(b.gone[0]); g != nil && g.state == missing {
			return g
		}
		b.gone = b.gone[1:]
	}
	b.gone = nil
	return nil
}

// resend records that a missing or flying segment is retransmitted, at most its first size bytes.
// The rest becomes a segment of its own, in the same state. The pointer is valid until the next
// call.
func (b *scoreboard) resend(g *segment, size int) *segment {
	if g.Size() > size {
		i := b.index(g.Start)
		rest := *g
		rest.Start += Seq(size)
		g.End = rest.Start
		b.segments.insert(i+1, rest)
		all := b.segments.all()
		b.remember(&all[i+1])
		g = &all[i]
	}
	if g.state == missing {
		b.missing -= g.Size()
		b.flight += g.Size()
		g.state = flying
	}
	g.resent = true
	return g
}

// renege marks everything that was selectively acknowledged as missing again.
func (b *scoreboard) renege() {
	b.known = nil
	all := b.segments.all()
	for i := range all {
		if g := &all[i]; g.state == sacked {
			b.missing += g.Size()
			g.state = missing
			b.remember(g)
		}
	}
}

// each calls f for the flying segments, in order.
func (b *scoreboard) each(f func(*segment)) {
	all := b.segments.all()
	for i := range all {
		if all[i].state == flying {
			f(&all[i])
		}
	}
}

// departure is what was known when a segment was last sent; see rateSampler.
type departure struct {
	at          time.Duration
	firstAt     time.Duration // when the flight began in which it is measured
	delivered   int64         // bytes delivered until then
	deliveredAt time.Duration // and when the last of them were
	limited     bool          // limited by the application or the receiver's window
	number      int           // counts the path's packets
}
