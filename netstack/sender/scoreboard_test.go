package sender

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// naiveBoard does what scoreboard does, byte by byte and with numbers that don't wrap.
type naiveBoard struct {
	una      int
	segments []naiveSegment
	known    map[int]bool // bytes reported by SACK
	newly    int          // bytes delivered
}

type naiveSegment struct {
	start, end int
	state      state
}

func (b *naiveBoard) nxt() int {
	if n := len(b.segments); n > 0 {
		return b.segments[n-1].end
	}
	return b.una
}

func (b *naiveBoard) send(size int) {
	b.segments = append(b.segments, naiveSegment{b.nxt(), b.nxt() + size, flying})
}

func (b *naiveBoard) acknowledge(ack int) (reneged bool) {
	var left []naiveSegment
	for _, g := range b.segments {
		switch {
		case g.end <= ack:
			if g.state != sacked {
				b.newly += g.end - g.start
			}
			continue
		case g.start < ack:
			g.start = ack
		}
		left = append(left, g)
	}
	b.segments, b.una = left, ack
	return len(left) > 0 && left[0].state == sacked
}

func (b *naiveBoard) selective(start, end int) {
	if start <= b.una || end <= start || end > b.nxt() || b.pieces() > len(b.segments) {
		return
	}
	for i := range b.segments {
		g := &b.segments[i]
		news, all := false, true
		for n := g.start; n < g.end; n++ {
			told := start <= n && n < end
			news = news || told && !b.known[n]
			all = all && (told || b.known[n])
		}
		if news && all && g.state != sacked {
			b.newly += g.end - g.start
			g.state = sacked
		}
	}
	for n := start; n < end; n++ {
		b.known[n] = true
	}
}

// pieces returns the number of separate ranges in known.
func (b *naiveBoard) pieces() (n int) {
	for at := b.una; at < b.nxt(); at++ {
		if b.known[at] && (at == b.una || !b.known[at-1]) {
			n++
		}
	}
	return n
}

func (b *naiveBoard) resend(i, size int) {
	if g := b.segments[i]; g.end-g.start > size {
		rest := g
		rest.start += size
		b.segments[i].end = rest.start
		b.segments = append(b.segments[:i+1], append([]naiveSegment{rest}, b.segments[i+1:]...)...)
	}
	b.segments[i].state = flying
}

func (b *naiveBoard) renege() {
	clear(b.known)
	for i := range b.segments {
		if b.segments[i].state == sacked {
			b.segments[i].state = missing
		}
	}
}

// in returns the number of bytes in a state.
func (b *naiveBoard) in(s state) (n int) {
	for _, g := range b.segments {
		if g.state == s {
			n += g.end - g.start
		}
	}
	return n
}

// boards runs both side by side.
type boards struct {
	t     *testing.T
	start Seq
	board scoreboard
	naive naiveBoard
	newly int
	log   []string
}

func (p *boards) delivered(g *segment) { p.newly += g.Size() }

// step performs the operation that three bytes encode.
func (p *boards) step(op, a, b byte) {
	n := &p.naive
	switch size := n.nxt() - n.una; {
	case op%8 < 2:
		p.log = append(p.log, fmt.Sprintf("send %d", 1+a%20))
		p.board.send(1 + int(a%20))
		n.send(1 + int(a%20))
	case op%8 == 2:
		ack := n.una + int(a)*int(b)%(size+1)
		p.log = append(p.log, fmt.Sprintf("ack %d", ack))
		got, want := p.board.acknowledge(p.start+Seq(ack), p.delivered), n.acknowledge(ack)
		if got != want {
			p.t.Fatalf("%v: reneged: got %v, want %v", p.log, got, want)
		}
		if want {
			p.board.renege()
			n.renege()
		}
	case op%8 < 5: // Some of these blocks make no sense.
		start, end := n.una+int(a)-2, n.una+int(a)+int(b%40)
		p.log = append(p.log, fmt.Sprintf("sack %d-%d", start, end))
		p.board.selective(Range{p.start + Seq(start), p.start + Seq(end)}, p.delivered)
		n.selective(start, end)
	case len(n.segments) == 0:
	case op%8 == 5:
		i := int(a) % len(n.segments)
		if n.segments[i].state == flying {
			p.log = append(p.log, fmt.Sprintf("lose %d", n.segments[i].start))
			p.board.lose(p.board.find(p.start + Seq(n.segments[i].start)))
			n.segments[i].state = missing
		}
	case op%8 == 6: // The first missing segment, or a flying one as a probe.
		i := int(a) % len(n.segments)
		if g := p.board.firstMissing(); g != nil {
			for i = range n.segments {
				if n.segments[i].state == missing {
					break
				}
			}
		}
		if n.segments[i].state == sacked {
			return
		}
		p.log = append(p.log, fmt.Sprintf("resend %d, %d bytes", n.segments[i].start, 1+b%20))
		p.board.resend(p.board.find(p.start+Seq(n.segments[i].start)), 1+int(b%20))
		n.resend(i, 1+int(b%20))
	case b%8 == 0:
		p.log = append(p.log, "renege")
		p.board.renege()
		n.renege()
	}
}

// compare fails if the two differ.
func (p *boards) compare() {
	p.t.Helper()
	b, n := &p.board, &p.naive
	if got, want := [...]int{p.start.To(b.una), p.start.To(b.nxt), b.flight, b.missing, p.newly},
		[...]int{n.una, n.nxt(), n.in(flying), n.in(missing), n.newly}; got != want {
		p.t.Fatalf("%v: una, nxt, flight, missing, delivered: got %v, want %v", p.log, got, want)
	}
	if segments := b.segments.all(); len(segments) != len(n.segments) {
		p.t.Fatalf("%v: %d segments, want %d", p.log, len(segments), len(n.segments))
	}
	first := Seq(0)
	found := false
	for i, want := range n.segments {
		g := b.segments.all()[i]
		if got := (naiveSegment{p.start.To(g.Start), p.start.To(g.End), g.state}); got != want {
			p.t.Fatalf("%v: segment %d: got %v, want %v", p.log, i, got, want)
		}
		if want.state == missing && !found {
			first, found = g.Start, true
		}
	}
	if g := b.firstMissing(); (g != nil) != found || found && g.Start != first {
		p.t.Fatalf("%v: first missing: got %v, want %v at %d", p.log, g, found, first)
	}
}

func playBoards(t *testing.T, start Seq, ops []byte) {
	p := &boards{t: t, start: start, board: newScoreboard(start), naive: naiveBoard{known: make(map[int]bool)}}
	for ; len(ops) >= 3; ops = ops[3:] {
		p.step(ops[0], ops[1], ops[2])
		p.compare()
	}
}

// The fast scoreboard and the naive one agree on all input, wherever numbers wrap.
func TestScoreboardAgreesWithNaive(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		ops := make([]byte, 3*200)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		playBoards(t, Seq(1<<32-uint64(rng.IntN(2000))), ops)
	}
}

// A peer that acknowledges single bytes cannot make the scoreboard large.
func TestScoreboardStaysSmall(t *testing.T) {
	b := newScoreboard(7)
	for range 3 {
		b.send(1000)
	}
	for at := Seq(9); at < 3000; at += 2 {
		b.selective(Range{at, at + 1}, func(*segment) {})
	}
	if len(b.known) > 4 {
		t.Errorf("%d pieces are known of 3 segments", len(b.known))
	}
}

func FuzzScoreboard(f *testing.F) {
	f.Add(uint32(1<<32-10), []byte{0, 9, 0, 0, 9, 0, 3, 12, 9, 5, 0, 0, 6, 0, 3, 2, 5, 3})
	f.Fuzz(func(t *testing.T, start uint32, ops []byte) { playBoards(t, Seq(start), ops[:min(len(ops), 1500)]) })
}
