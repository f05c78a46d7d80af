package underlay

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

const (
	// answerLifetime is how long an answer is repeated to later copies of its initiation: until
	// WireGuard makes a new one.
	answerLifetime = 5 * time.Second
	// lostAfter is how long after an answer a copy on the same path means that the answer was lost:
	// longer than the network takes to duplicate a datagram, shorter than a gateway waits.
	lostAfter = 500 * time.Millisecond
	// arrivalLifetime is how long an initiation may wait for the device's answer on a busy machine.
	arrivalLifetime = 5 * time.Second
	// answersKept bounds the stored responses. They go to authenticated initiations only.
	answersKept = 64
	// arrivalsKept bounds the stored initiations, authentic or not: as many as wireguard-go's own
	// handshake queue. A larger flood evicts honest ones, which then only lose the answers on all
	// paths.
	arrivalsKept = 1024
	// answerCopies bounds how often one answer is repeated.
	answerCopies = 4
)

// answers stores recent initiations and our responses, and pairs each response with the copies of
// its initiation that arrived on other paths. They are matched by the initiator's 32-bit session
// index, which a stranger does not know. It has no clock and sends nothing.
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
	at, last time.Time // when it was first sent, and last to anyone
	message  []byte
	copies   []conn.Endpoint
	// known reports which endpoints may get it, besides the first copy's source.
	known func(conn.Endpoint) bool
}

// arrived notes a copy of an initiation and returns the response to send to it; nil if there is
// none yet, the copy has been answered, or it came from a stranger.
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

// source returns where and when the first copy of an unanswered initiation arrived; nil if there is
// none.
func (a *answers) source(index uint32, now time.Time) (from conn.Endpoint, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.seen { // oldest first
		in := &a.seen[(a.nextIn+i)%arrivalsKept]
		if in.from != nil && in.index == index && now.Sub(in.at) < arrivalLifetime {
			return in.from, in.at
		}
	}
	return nil, time.Time{}
}

// answered notes a response, and returns the endpoints of earlier copies that may get it: those
// equal to the first copy's source, and those that known vouches for.
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

// takes reports whether to answer a copy from the endpoint, and notes it. A stranger's copy is not
// even noted: replays must not use up the allowed copies.
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

// answerAgain repeats our response if this initiation is a later copy of an answered one.
func (b *Bind) answerAgain(initiation []byte, from conn.Endpoint) {
	index := binary.LittleEndian.Uint32(initiation[4:]) // sender_index
	if message := b.answers.arrived(index, from, time.Now()); message != nil {
		b.repeat(message, from)
	}
}

// repeatAnswer stores a response that was just sent and repeats it to earlier copies of its
// initiation, if known vouches for them.
func (b *Bind) repeatAnswer(response []byte, to conn.Endpoint, known func(conn.Endpoint) bool) {
	index := binary.LittleEndian.Uint32(response[8:]) // receiver_index
	for _, from := range b.answers.answered(index, response, to, time.Now(), known) {
		b.repeat(response, from)
	}
}

// known vouches for the paths of peers: someone who replays an initiation from their own address
// gets no answer.
func (b *Bind) known(from conn.Endpoint) bool { return b.paths.has(pathOf(from)) }

// anyone vouches for everyone.
func anyone(conn.Endpoint) bool { return true }

// repeat sends a response to the source of a copy.
func (b *Bind) repeat(response []byte, from conn.Endpoint) {
	if err := b.sendDirect([][]byte{response}, from); err == nil {
		b.counters.answersRepeated.Add(1)
		b.handshakes.repeated(response, from)
	}
}
