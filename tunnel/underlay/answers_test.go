package underlay

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

func at(addr string) conn.Endpoint { return &packetEndpoint{netip.MustParseAddrPort(addr)} }

func TestAnswersArePairedWithTheirInitiation(t *testing.T) {
	t0 := time.Unix(1000, 0)
	a, b, c := at("192.0.2.1:1"), at("192.0.2.2:2"), at("192.0.2.3:3")
	var book answers
	if book.arrived(1, a, t0) != nil {
		t.Error("an initiation that was not answered has an answer")
	}
	if got, _ := book.source(1, t0); got != a {
		t.Errorf("the answer would go to %v, want %v", got, a)
	}
	if copies := book.answered(1, []byte("r"), a, t0, anyone); len(copies) != 0 {
		t.Errorf("the first copy's path gets the answer twice: %v", copies)
	}
	if m := book.arrived(1, b, t0.Add(300*time.Millisecond)); string(m) != "r" {
		t.Errorf("later copy: got %q, want the answer", m)
	}
	for name, m := range map[string][]byte{
		"the same copy again":  book.arrived(1, b, t0.Add(400*time.Millisecond)),
		"another initiation":   book.arrived(2, c, t0),
		"a copy after its day": book.arrived(1, c, t0.Add(answerLifetime)),
	} {
		if m != nil {
			t.Errorf("%s: got an answer, want none", name)
		}
	}
}

func TestSourceOfAnInitiationIsThatOfItsFirstCopy(t *testing.T) {
	t0 := time.Unix(1000, 0)
	old, first, second := at("192.0.2.1:1"), at("192.0.2.2:2"), at("192.0.2.3:3")
	var book answers
	book.arrived(1, old, t0.Add(-arrivalLifetime))
	book.arrived(1, first, t0)
	book.arrived(1, second, t0)
	if got, _ := book.source(1, t0); got != first {
		t.Errorf("got %v, want %v", got, first)
	}
	for i := range uint32(arrivalsKept) {
		if got, _ := book.source(1, t0); i < arrivalsKept-2 && got != first {
			t.Fatalf("%d other initiations pushed it out: got %v", i, got)
		}
		book.arrived(1000+i, old, t0)
	}
	if got, _ := book.source(1, t0); got != nil {
		t.Errorf("after %d others: got %v, want none", arrivalsKept, got)
	}
}

func TestAnswersReachCopiesThatCameEarlier(t *testing.T) {
	t0 := time.Unix(1000, 0)
	a, b, old := at("192.0.2.1:1"), at("192.0.2.2:2"), at("192.0.2.3:3")
	var book answers
	book.arrived(1, old, t0.Add(-answerLifetime))
	book.arrived(1, a, t0)
	book.arrived(1, b, t0)
	book.arrived(1, b, t0) // the network may duplicate datagrams
	copies := book.answered(1, []byte("r"), a, t0, anyone)
	if len(copies) != 1 || copies[0] != b {
		t.Errorf("got %v, want only %v", copies, b)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var book answers
	book.answered(1, []byte("r"), at("192.0.2.1:1"), t0, anyone)
	repeated := 0
	for i := range 100 {
		from := &packetEndpoint{netip.AddrPortFrom(loopback4, uint16(i+1))}
		if book.arrived(1, from, t0) != nil {
			repeated++
		}
	}
	if repeated != answerCopies {
		t.Errorf("one answer was repeated %d times, want %d", repeated, answerCopies)
	}
}

func TestReplaysOfStrangersUseUpNoAnswers(t *testing.T) {
	t0 := time.Unix(1000, 0)
	peer := at("192.0.2.9:9")
	var before, after answers
	for i := range 100 { // before and after the answer is ready
		from := &packetEndpoint{netip.AddrPortFrom(loopback4, uint16(i+1))}
		before.arrived(1, from, t0)
	}
	before.arrived(1, peer, t0)
	only := func(ep conn.Endpoint) bool { return ep == peer }
	if got := before.answered(1, []byte("r"), at("192.0.2.1:1"), t0, only); len(got) != 1 || got[0] != peer {
		t.Errorf("answered: got %v, want only %v", got, peer)
	}
	after.answered(1, []byte("r"), at("192.0.2.1:1"), t0, only)
	for i := range 100 {
		from := &packetEndpoint{netip.AddrPortFrom(loopback4, uint16(i+1))}
		if after.arrived(1, from, t0) != nil {
			t.Fatal("a stranger got the answer")
		}
	}
	if after.arrived(1, peer, t0) == nil {
		t.Error("after strangers' replays the peer gets no answer")
	}
}

func TestAnswerIsRepeatedToCandidatesAndNotToStrangers(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := start(t, make(Options{}))
		first, other, stranger := plain(t, loopback4), plain(t, loopback4), plain(t, loopback4)
		b.SetCandidates("x", direct(localAddr(first), localAddr(other)))
		write(t, first, initiation(5), b.addr())
		if err := b.Send([][]byte{response(5)}, b.next(t).ep); err != nil {
			t.Fatal(err)
		}
		b.again(t, func() { write(t, stranger, initiation(5), b.addr()) })
		b.again(t, func() { write(t, other, initiation(5), b.addr()) })
		if got, _ := read(t, first); !bytes.Equal(got, response(5)) {
			t.Errorf("first copy: got %x, want the response", got)
		}
		if got, _ := read(t, other); !bytes.Equal(got, response(5)) {
			t.Errorf("copy from a candidate: got %x, want the response", got)
		}
		expectSilence(t, stranger)
		if got := b.Counters().AnswersRepeated; got != 1 {
			t.Errorf("answers repeated: got %d, want 1", got)
		}
	})
}

func TestAnswerIsRepeatedFromOurOtherAddress(t *testing.T) {
	for _, k := range kinds {
		if !k.sticky {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			b, c := start(t, k.make(Options{})), plain(t, loopback4)
			second := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), b.port)
			write(t, c, initiation(5), b.addr())
			ep := b.next(t).ep
			b.again(t, func() { write(t, c, initiation(5), second) }) // before the answer is ready
			if err := b.Send([][]byte{response(5)}, ep); err != nil {
				t.Fatal(err)
			}
			for _, want := range []netip.AddrPort{b.addr(), second} {
				if got, from := read(t, c); !bytes.Equal(got, response(5)) || from != want {
					t.Errorf("got %x from %v, want the response from %v", got, from, want)
				}
			}
		})
	}
}
