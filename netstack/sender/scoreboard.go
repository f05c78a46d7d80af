package sender

import (
	"slices"
	"sort"
	"time"
)

// state is what is known of a segment that isn't acknowledged. Its transitions:
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
	flying  state = iota // on its way, as far as is known
	missing              // taken for lost and not sent again since
	sacked               // the receiver has it, but may still discard it (RFC 2018 §8)
)

// segment is a packet that was sent and isn't acknowledged.
type segment struct {
	Range
	state    state
	resent   bool // more than one copy was sent
	lost     bool // counted as lost
	departed departure
}

// scoreboard knows of each byte that was sent and isn't acknowledged what became of it (RFC
// 2018 §5, RFC 6675 §3). It knows no time and decides nothing.
//
// What was selectively acknowledged stays on it until it is acknowledged for good: a
// receiver may have discarded it and need it again.
type scoreboard struct {
	una, nxt Seq
	segments fifo[segment] // from una up to nxt, without gaps
	known    []Range       // what SACK told, in order and not touching: told again it costs nothing
	gone     []Seq         // where missing segments start, in order; some aren't missing any more

	flight  int // bytes that are flying
	missing int // bytes that are missing
}

func newScoreboard(start Seq) scoreboard { return scoreboard{una: start, nxt: start} }

// send appends a new segment. The pointer holds until the next call.
func (b *scoreboard) send(size int) *segment {
	b.segments.push(segment{Range: Range{b.nxt, b.nxt + Seq(size)}})
	b.nxt += Seq(size)
	b.flight += size
	all := b.segments.all()
	return &all[len(all)-1]
}

// index is where the segment is that a sequence number from una up to nxt is in.
func (b *scoreboard) index(s Seq) int {
	all := b.segments.all()
	return sort.Search(len(all), func(i int) bool { return s.Before(all[i].End) })
}

// find is the segment that starts at s, or nil.
func (b *scoreboard) find(s Seq) *segment {
	if s.Before(b.una) || !s.Before(b.nxt) {
		return nil
	}
	if g := &b.segments.all()[b.index(s)]; g.Start == s {
		return g
	}
	return nil
}

// acknowledge takes a cumulative acknowledgement between una and nxt. delivered is called
// for each segment that the receiver wasn't known to have. It reports whether the receiver
// has discarded what it had selectively acknowledged: it acknowledges all up to such a
// segment, and not that (RFC 2018 §8).
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

// arrive takes in that the receiver has a segment.
func (b *scoreboard) arrive(g *segment, delivered func(*segment)) {
	if g.state == sacked {
		return
	}
	b.account(g, -g.Size())
	delivered(g)
	g.state = sacked
}

// account books n more bytes of a segment.
func (b *scoreboard) account(g *segment, n int) {
	switch g.state {
	case flying:
		b.flight += n
	case missing:
		b.missing += n
	}
}

// selective takes one block of a selective acknowledgement. Blocks that make no sense are
// ignored, and those below the acknowledgement, which tell of duplicates (RFC 2883); so are
// all when they are in more pieces than was sent, which only costs time.
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

// mark marks the segments that news touches and that lie within what is known now: two
// blocks may tell of one segment's halves.
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

// covers reports whether block and what was known before hold all of r.
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

// lose takes a flying segment for lost.
func (b *scoreboard) lose(g *segment) {
	b.flight -= g.Size()
	b.missing += g.Size()
	g.state = missing
	b.remember(g)
}

// remember lists a segment that is missing.
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

// firstMissing is the missing segment that comes first; nil if there is none.
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

// resend takes in that a missing or a flying segment is sent again, its first size bytes
// at most; what is left of it stays as it is, as a segment of its own. The pointer holds
// until the next call.
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

// renege takes all that was selectively acknowledged for missing again.
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

// each calls f for the segments that are flying, in order.
func (b *scoreboard) each(f func(*segment)) {
	all := b.segments.all()
	for i := range all {
		if all[i].state == flying {
			f(&all[i])
		}
	}
}

// departure is what was known when a segment was last sent: see rateSampler.
type departure struct {
	at          time.Duration
	firstAt     time.Duration // when the flight began that it is measured in
	delivered   int64         // bytes delivered until then
	deliveredAt time.Duration // and when the last of them were
	limited     bool          // the application, or the receiver's window, gave no more
}
