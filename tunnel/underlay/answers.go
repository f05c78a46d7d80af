package underlay

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

const (
	// answerLifetime is how long an answer is repeated to later copies of its
	// initiation: until WireGuard makes a new one.
	answerLifetime = 5 * time.Second
	// lostAfter is how long after an answer a copy over the same path means that it was lost:
	// longer than the network takes to repeat a datagram, shorter than a gateway waits.
	lostAfter = 500 * time.Millisecond
	// arrivalLifetime is how long an initiation may wait for the device to answer it,
	// on a machine that is busy.
	arrivalLifetime = 5 * time.Second
	// answersKept bounds the responses that are remembered. They are sent to
	// authenticated initiations only.
	answersKept = 64
	// arrivalsKept bounds the initiations that are remembered, whatever is sent to us:
	// as many as wireguard-go's own queue of handshakes holds. A greater flood pushes
	// honest ones out, which then lose only the convenience of answers over all paths.
	arrivalsKept = 1024
	// answerCopies bounds how often one answer is repeated.
	answerCopies = 4
)

// answers remembers recent initiations and our responses to them, and pairs each
// response with the copies of its initiation that came over other paths. Initiation and
// response are matched by the initiator's 32-bit session index, which a stranger does
// not know. It holds no clock and sends nothing.
type answers struct {
	mu     sync.Mutex
	seen   [arrivalsKept]arrival // ring
	sent   [answersKept]answer   // ring
	nextIn int
	next   int
}

// arrival is one copy of an initiation.
type arrival struct {
	index uint32
	from  conn.Endpoint
	at    time.Time
}

// answer is a response that was sent.
type answer struct {
	index    uint32
	to       conn.Endpoint
	at, last time.Time // when it was sent first, and to anybody
	message  []byte
	copies   []conn.Endpoint
	// known vouches for those that may have it, besides where the first copy came from.
	known func(conn.Endpoint) bool
}

// arrived notes a copy of an initiation, and gives the response it should get; nil if
// none was sent yet, or it has its answer, or it came from a stranger.
func (a *answers) arrived(index uint32, from conn.Endpoint, now time.Time) (message []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[a.nextIn] = arrival{index, from, now}
	a.nextIn = (a.nextIn + 1) % arrivalsKept
	for i := range a.sent {
		if s := &a.sent[i]; s.index == index && s.fresh(now) && s.takes(from, now) {
			return s.message
		}
	}
	return nil
}

// source is where the first copy of an initiation came from that may be waiting for its
// response, and when; nil if there is none.
func (a *answers) source(index uint32, now time.Time) (from conn.Endpoint, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.seen { // From the oldest on.
		in := &a.seen[(a.nextIn+i)%arrivalsKept]
		if in.from != nil && in.index == index && now.Sub(in.at) < arrivalLifetime {
			return in.from, in.at
		}
	}
	return nil, time.Time{}
}

// answered notes a response, and gives the endpoints of the copies that arrived before
// it was sent and may have it: from where the first copy came, or as known says.
func (a *answers) answered(index uint32, message []byte, to conn.Endpoint, now time.Time, known func(conn.Endpoint) bool) []conn.Endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.sent[a.next]
	a.next = (a.next + 1) % answersKept
	*s = answer{index: index, to: to, at: now, last: now, message: append([]byte(nil), message...), known: known}
	var copies []conn.Endpoint
	for _, in := range a.seen {
		if in.from != nil && in.index == index && now.Sub(in.at) < answerLifetime && s.takes(in.from, now) {
			copies = append(copies, in.from)
		}
	}
	return copies
}

func (s *answer) fresh(now time.Time) bool { return s.to != nil && now.Sub(s.at) < answerLifetime }

// takes reports whether a copy from the endpoint is to be answered, and notes it. A
// stranger's is not even noted: replays must not use up what copies there are.
func (s *answer) takes(from conn.Endpoint, now time.Time) bool {
	if len(s.copies) == answerCopies {
		return false
	}
	has := func(c conn.Endpoint) bool { return samePath(c, from) }
	if (has(s.to) || slices.ContainsFunc(s.copies, has)) && now.Sub(s.last) < lostAfter {
		return false
	}
	if pathOf(from) != pathOf(s.to) && !s.known(from) {
		return false
	}
	s.copies, s.last = append(s.copies, from), now
	return true
}

// samePath compares both ends: a peer with one address may reach two of ours.
func samePath(a, b conn.Endpoint) bool { return pathOf(a) == pathOf(b) && a.SrcIP() == b.SrcIP() }

// answerAgain repeats our response when this initiation is a later copy of one that
// was answered.
func (b *Bind) answerAgain(initiation []byte, from conn.Endpoint) {
	index := binary.LittleEndian.Uint32(initiation[4:]) // sender_index
	if message := b.answers.arrived(index, from, time.Now()); message != nil {
		b.repeat(message, from)
	}
}

// repeatAnswer remembers a response that was just sent and repeats it to the copies of
// its initiation that had arrived already, as far as known vouches for them.
func (b *Bind) repeatAnswer(response []byte, to conn.Endpoint, known func(conn.Endpoint) bool) {
	index := binary.LittleEndian.Uint32(response[8:]) // receiver_index
	for _, from := range b.answers.answered(index, response, to, time.Now(), known) {
		b.repeat(response, from)
	}
}

// known vouches for the paths of peers: whoever replays an initiation from an address of
// their own gets silence.
func (b *Bind) known(from conn.Endpoint) bool { return b.paths.has(pathOf(from)) }

// anyone vouches for everybody.
func anyone(conn.Endpoint) bool { return true }

// repeat sends a response to the source of a copy.
func (b *Bind) repeat(response []byte, from conn.Endpoint) {
	if err := b.sendDirect([][]byte{response}, from); err == nil {
		b.counters.answersRepeated.Add(1)
		b.handshakes.repeated(response, from)
	}
}
