package underlay

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// responseCopies bounds how many sources of one handshake's response are stored.
const responseCopies = 4

// handshakes learns on which path a handshake with a managed peer got through. It cannot verify a
// message, so it watches what the device does with it.
//
// When we initiate, the device's first data message to the receiver index of a response shows that
// the device has accepted that response: the response's path works in both directions.
//
// When we respond, the initiator's first data message with the index of our response shows that it
// was accepted; the session's first message takes the response's path. It counts only from the
// addresses that the response went to.
//
// All indices are random 32-bit numbers, which nobody guesses without reading the traffic. Someone
// who can read it might race a copy from their own address, as with any WireGuard; so addresses
// that were sent to are preferred.
type handshakes struct {
	mu       sync.Mutex
	begun    map[uint32]*fanOut   // by the index of our last initiation to it
	answers  map[uint32]*answered // by the index of our last response
	awaiting atomic.Int32         // len(answers), for the path of data
}

// exchange is the last handshake with a peer; guarded by handshakes.mu.
type exchange struct {
	// open is set while a response may have been accepted.
	open      atomic.Bool
	index     uint32 // of our initiation, if initiated
	initiated bool
	begunAt   time.Time
	// undone says that the device has since answered an initiation from the peer, and so discarded
	// ours.
	undone    bool
	responses []reply
	answer    uint32 // the index of our response, if responded
	responded bool
	// givenUpAt is when the device last had to discard all sessions with the peer; givenUp says
	// that the session of our response was, or may have been, among them.
	givenUpAt time.Time
	givenUp   bool
}

// reply is a response that arrived.
type reply struct {
	index uint32
	from  conn.Endpoint
}

// answered is our response that awaits its first data message.
type answered struct {
	to *fanOut
	// sources are where the response was sent, at most 1 + answerCopies.
	sources []conn.Endpoint
}

func (h *handshakes) init() {
	h.begun, h.answers = make(map[uint32]*fanOut), make(map[uint32]*answered)
}

// initiated notes an initiation about to be sent. It replaces the last, unless it is the same.
func (h *handshakes) initiated(f *fanOut, initiation []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, index := &f.exchange, binary.LittleEndian.Uint32(initiation[4:])
	if s.initiated && s.index == index {
		return
	}
	h.endInitiatedLocked(f)
	s.index, s.initiated, s.begunAt = index, true, time.Now()
	h.begun[index] = f
}

func (h *handshakes) endInitiatedLocked(f *fanOut) {
	s := &f.exchange
	if s.initiated && h.begun[s.index] == f {
		delete(h.begun, s.index)
	}
	s.open.Store(false)
	s.initiated, s.undone, s.responses = false, false, nil
}

// crossed returns the peer that the path works to and that our initiation is on its way to, nil if
// there is none.
func (h *handshakes) crossed(path peer.Path) *fanOut {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.begun {
		if !f.exchange.undone && f.works(path) {
			return f
		}
	}
	return nil
}

// responseCame notes a response, authentic or not, that matches an initiation of ours. It returns
// the peer that the initiation went to (nil if none matches), when it went, and whether this is the
// first response.
func (h *handshakes) responseCame(response []byte, from conn.Endpoint) (f *fanOut, asked time.Time, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f = h.begun[binary.LittleEndian.Uint32(response[8:])]
	if f == nil {
		return nil, time.Time{}, false
	}
	r := reply{binary.LittleEndian.Uint32(response[4:]), from}
	s := &f.exchange
	first = len(s.responses) == 0
	if len(s.responses) < responseCopies {
		s.responses = append(s.responses, r)
	} else if last := &s.responses[responseCopies-1]; !f.has(pathOf(last.from)) && f.has(pathOf(from)) {
		*last = r // strangers must not fill the table
	}
	s.open.Store(true)
	return f, s.begunAt, first
}

// peerAsked returns the peer that our initiation with an index went to, nil for none.
func (h *handshakes) peerAsked(index uint32) *fanOut {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun[index]
}

// answered returns the endpoint whose response the device has accepted, if a data message about to
// be sent shows it.
//
// A device that processes that response together with an initiation from the peer may accept the
// response after answering the initiation. The session then has the index of that answer, and the
// peer sends to an index that no longer exists. That is reported as dead.
func (h *handshakes) answered(f *fanOut, data []byte) (proved conn.Endpoint, dead bool) {
	if len(data) < minSizeData || data[0] != typeData {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	index := binary.LittleEndian.Uint32(data[4:])
	for _, r := range f.exchange.responses {
		if r.index != index {
			continue
		}
		if proved == nil {
			proved = r.from
		}
		if f.has(pathOf(r.from)) {
			proved = r.from
			break
		}
	}
	if proved != nil {
		dead = f.exchange.undone
		h.endInitiatedLocked(f)
	}
	return proved, dead
}

// responded notes our response and where it went. asked is when the device got the initiation,
// zero if unknown. The response replaces the last one; vain reports whether that one led to no
// session.
func (h *handshakes) responded(f *fanOut, response []byte, to conn.Endpoint, asked time.Time) (vain bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &f.exchange
	vain = s.responded
	h.endRespondedLocked(f)
	s.answer, s.responded, s.undone = binary.LittleEndian.Uint32(response[4:]), true, s.initiated
	s.givenUp = !asked.IsZero() && !asked.After(s.givenUpAt)
	h.answers[s.answer] = &answered{to: f, sources: []conn.Endpoint{to}}
	h.awaiting.Store(int32(len(h.answers)))
	return vain
}

// repeated notes another destination of a response.
func (h *handshakes) repeated(response []byte, to conn.Endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.answers[binary.LittleEndian.Uint32(response[4:])]; a != nil && len(a.sources) <= answerCopies {
		a.sources = append(a.sources, to)
	}
}

func (h *handshakes) endRespondedLocked(f *fanOut) {
	s := &f.exchange
	if a := h.answers[s.answer]; s.responded && a != nil && a.to == f {
		delete(h.answers, s.answer)
	}
	s.responded = false
	h.awaiting.Store(int32(len(h.answers)))
}

// confirmed returns the peer that has accepted our response, as an arriving data message shows, nil
// for all other messages; and whether our side has discarded that session.
func (h *handshakes) confirmed(data []byte, from conn.Endpoint) (f *fanOut, dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.answers[binary.LittleEndian.Uint32(data[4:])]
	if a == nil {
		return nil, false
	}
	for _, ep := range a.sources {
		if pathOf(ep) == pathOf(from) {
			h.endRespondedLocked(a.to)
			return a.to, a.to.exchange.givenUp
		}
	}
	return nil, false
}

func (h *handshakes) forget(f *fanOut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endInitiatedLocked(f)
	h.endRespondedLocked(f)
}

// GaveUp must be called right after the device discarded all sessions with a peer
// (ExpireCurrentKeypairs). That includes the session which a response of ours is about to begin,
// and the peer does not know.
func (b *Bind) GaveUp(id string) {
	if f := b.peer(id); f != nil {
		b.handshakes.mu.Lock()
		defer b.handshakes.mu.Unlock()
		f.exchange.givenUpAt, f.exchange.givenUp = time.Now(), f.exchange.responded
	}
}

// began records that a session has begun on a path, which works in both directions.
func (b *Bind) began(f *fanOut, ep conn.Endpoint, dead bool) {
	f.setLearned(ep)
	kind := handshake.Began
	if dead {
		kind = handshake.BeganDead
	}
	b.events.add(handshake.Event{Kind: kind, Peer: f.id, Path: pathOf(ep)})
}

// respond sends our response to where the initiation came from or, if a flood has evicted that, to
// where data goes.
//
// If no data followed the last response, it may have been lost on the way. Then the only path that
// works back may be one that is unknown to us, so up to 4 copies of the initiation are answered,
// whatever their source.
func (b *Bind) respond(f *fanOut, response []byte) error {
	index := binary.LittleEndian.Uint32(response[8:]) // receiver_index
	ep, asked := b.answers.source(index, time.Now())
	if ep != nil {
		b.observed.initiationAnswered(index, pathOf(ep), f.id)
	} else if ep = f.first(); ep == nil {
		return ErrNoCandidates
	}
	known := b.known
	if b.handshakes.responded(f, response, ep, asked) {
		known = anyone
	}
	b.events.add(handshake.Event{Kind: handshake.Responded, Peer: f.id})
	err := b.sendDirect([][]byte{response}, ep)
	b.repeatAnswer(response, ep, known)
	return err
}

// note looks at a WireGuard message that the device is about to get.
func (b *Bind) note(p []byte, from conn.Endpoint) {
	switch p[0] {
	case typeInitiation:
		b.answerAgain(p, from)
	case typeResponse:
		f, asked, first := b.handshakes.responseCame(p, from)
		id := ""
		if f != nil && f.managed.Load() {
			id = f.id
		}
		b.observed.responseCame(p, pathOf(from), id, asked, time.Now())
		if first {
			b.events.add(handshake.Event{Kind: handshake.ResponseCame, Peer: f.id})
		}
	case typeCookieReply:
		if f := b.handshakes.peerAsked(binary.LittleEndian.Uint32(p[4:])); f != nil { // receiver_index
			b.events.add(handshake.Event{Kind: handshake.CookieCame, Peer: f.id})
		}
	case typeData:
		if b.handshakes.awaiting.Load() == 0 {
			return
		}
		if f, dead := b.handshakes.confirmed(p, from); f != nil {
			b.began(f, from, dead)
		}
	}
}
