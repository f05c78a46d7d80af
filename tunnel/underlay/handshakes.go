package underlay

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// responseCopies bounds how many sources of one handshake's response are remembered.
const responseCopies = 4

// handshakes learns from the handshakes with managed peers over which path they got
// through. It cannot verify a message; it watches what the device does with it.
//
// When we initiate, the device's first data message with the receiver index that a
// response carried as its own shows that it has accepted that response: the path of the
// response works in both directions.
//
// When we respond, the initiator's first data message with the index of our response
// shows that it has accepted it; the session's first message goes over the path of the
// response. It counts from no other source than those that the response went to.
//
// All indices are random 32-bit numbers: who cannot read the traffic hits none. Who can
// read it might race a copy from an address of his own, as against any WireGuard; the
// addresses that were spoken to are therefore preferred.
type handshakes struct {
	mu       sync.Mutex
	begun    map[uint32]*fanOut   // by the index of our last initiation to it
	answers  map[uint32]*answered // by the index of our last response
	awaiting atomic.Int32         // len(answers), for the path of data
}

// handshake is what is known of the last one with a peer; guarded by handshakes.mu.
type handshake struct {
	// open is set while a response may have been accepted.
	open      atomic.Bool
	index     uint32 // of our initiation, if initiated
	initiated bool
	begunAt   time.Time
	// undone says that the device has answered an initiation of the peer's since, and by that
	// forgotten ours.
	undone bool
	// nowhere says that the device has made one since that had no path to go.
	nowhere   bool
	responses []reply
	// responseAt is when the first of them came.
	responseAt time.Time
	answer     uint32 // the index of our response, if responded
	responded  bool
	// givenUpAt is when the device was last made to give up all sessions with the peer.
	givenUpAt time.Time
	// dead says that the session which our response makes was, or may have been, among them.
	dead bool
}

// recent reports whether our initiation is so young that another may have crossed it: not one
// of long ago whose answer the device has refused, for another preshared key.
func (s *handshake) recent() bool { return time.Since(s.begunAt) < crossingTime }

// reply is a response that arrived.
type reply struct {
	index uint32
	from  conn.Endpoint
}

// answered is a response of ours that awaits its first data message.
type answered struct {
	to *fanOut
	// sources are where the response went, at most 1 + answerCopies.
	sources []conn.Endpoint
}

func (h *handshakes) init() {
	h.begun, h.answers = make(map[uint32]*fanOut), make(map[uint32]*answered)
}

// initiated notes an initiation that is about to be sent. It takes the place of the last.
func (h *handshakes) initiated(f *fanOut, initiation []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endInitiatedLocked(f)
	s := &f.handshake
	s.index, s.initiated, s.begunAt = binary.LittleEndian.Uint32(initiation[4:]), true, time.Now()
	h.begun[s.index] = f
}

// wentNowhere notes an initiation for which there is no path. It takes the place of the last
// all the same.
func (h *handshakes) wentNowhere(f *fanOut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endInitiatedLocked(f)
	f.handshake.nowhere = true
}

// Initiation is when an initiation to a managed peer was last sent that the device still waits
// for an answer to; zero if there is none. The device makes such of its own accord, when there
// is data for the peer; nowhere says that the last one was made when no path was known.
func (b *Bind) Initiation(id string) (at time.Time, nowhere bool) {
	b.mu.Lock()
	f := b.candidates[id]
	b.mu.Unlock()
	if f == nil {
		return time.Time{}, false
	}
	b.handshakes.mu.Lock()
	defer b.handshakes.mu.Unlock()
	s := &f.handshake
	if s.initiated && !s.undone {
		at = s.begunAt
	}
	return at, s.nowhere
}

func (h *handshakes) endInitiatedLocked(f *fanOut) {
	s := &f.handshake
	if s.initiated && h.begun[s.index] == f {
		delete(h.begun, s.index)
	}
	s.open.Store(false)
	s.initiated, s.undone, s.nowhere, s.responses = false, false, false, nil
}

// responseCame notes a response, authentic or not, if it fits an initiation of ours. It
// gives the ID of the peer that this was sent to, "" if it fits none, and when.
//
// Where it is the first one to an initiation that the device has forgotten by answering the
// peer's, and nothing has come yet by that answer, the two have crossed: the peer's device has
// forgotten its own, too.
func (h *handshakes) responseCame(response []byte, from conn.Endpoint) (id string, asked time.Time, crossed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.begun[binary.LittleEndian.Uint32(response[8:])]
	if f == nil {
		return "", time.Time{}, false
	}
	r := reply{binary.LittleEndian.Uint32(response[4:]), from}
	s := &f.handshake
	if len(s.responses) == 0 {
		s.responseAt = time.Now()
		crossed = s.undone && s.responded && s.recent()
	}
	if len(s.responses) < responseCopies {
		s.responses = append(s.responses, r)
	} else if last := &s.responses[responseCopies-1]; !f.has(pathOf(last.from)) && f.has(pathOf(from)) {
		*last = r // Strangers must not fill the book.
	}
	s.open.Store(true)
	return f.id, s.begunAt, crossed
}

// answered gives the endpoint whose response the device has accepted, if a data message
// that is about to be sent shows it.
//
// A device that works on that response and on an initiation of the peer's at the same time
// may accept the one after it has answered the other. The session then has the index of that
// answer: what the peer sends is for an index that is there no more. That is told as dead.
func (h *handshakes) answered(f *fanOut, data []byte) (proved conn.Endpoint, dead bool) {
	if len(data) < minSizeData || data[0] != typeData {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	index := binary.LittleEndian.Uint32(data[4:])
	for _, r := range f.handshake.responses {
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
		if dead = f.handshake.undone; !dead {
			f.handshake.dead = false // There is a session by which we can send, whatever the peer begins.
		}
		h.endInitiatedLocked(f)
	}
	return proved, dead
}

// responded notes a response of ours and where it went, to an initiation that the device
// was given at a time, zero if that is not known. It takes the place of the last, and tells
// whether that has been in vain; and whether the initiation has crossed one of ours, to which
// a response has come that the device has not taken, and will not take any more.
func (h *handshakes) responded(f *fanOut, response []byte, to conn.Endpoint, asked time.Time) (vain, crossed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &f.handshake
	vain, crossed = s.responded, s.initiated && len(s.responses) > 0 && s.recent()
	h.endRespondedLocked(f)
	s.answer, s.responded, s.undone = binary.LittleEndian.Uint32(response[4:]), true, s.initiated
	s.dead = !asked.IsZero() && !asked.After(s.givenUpAt)
	h.answers[s.answer] = &answered{to: f, sources: []conn.Endpoint{to}}
	h.awaiting.Store(int32(len(h.answers)))
	return vain, crossed
}

// repeated notes that a response also went elsewhere.
func (h *handshakes) repeated(response []byte, to conn.Endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.answers[binary.LittleEndian.Uint32(response[4:])]; a != nil && len(a.sources) <= answerCopies {
		a.sources = append(a.sources, to)
	}
}

func (h *handshakes) endRespondedLocked(f *fanOut) {
	s := &f.handshake
	if a := h.answers[s.answer]; s.responded && a != nil && a.to == f {
		delete(h.answers, s.answer)
	}
	s.responded = false
	h.awaiting.Store(int32(len(h.answers)))
}

// confirmed gives the peer whose response a data message that arrived shows to have been
// accepted, nil for all other messages; and whether our side has given up that session.
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
			return a.to, a.to.handshake.dead
		}
	}
	return nil, false
}

// gaveUp notes that the device has given up its sessions with the peer.
func (h *handshakes) gaveUp(f *fanOut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &f.handshake
	s.givenUpAt, s.dead = time.Now(), s.responded
}

func (h *handshakes) forget(f *fanOut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endInitiatedLocked(f)
	h.endRespondedLocked(f)
}

// OnHandshake sets whom to tell that a handshake with a managed peer was completed, and
// over which path. The function is called by the goroutines that send and receive, which
// may hold the device's locks: it must neither block nor call the device.
func (b *Bind) OnHandshake(f func(id string, p peer.Path)) { b.onHandshake.Store(&f) }

// OnDeadSession sets whom to tell, under the same terms and instead of OnHandshake, that a
// managed peer has begun a session which GaveUp has ended on our side, or may have: we can
// read what it sends, and send nothing; or that our device has begun one by which it can send
// and read nothing. It is dead until another handshake is completed. The path works in both
// directions all the same.
func (b *Bind) OnDeadSession(f func(id string, p peer.Path)) { b.onDeadSession.Store(&f) }

// OnCrossing sets whom to tell, under the same terms, that an initiation to a managed peer and
// one of its have undone each other: each side has answered the other's, and by that forgotten
// its own. That happens on paths of which nothing is known yet ([Bind.Insist]).
func (b *Bind) OnCrossing(f func(id string)) { b.onCrossing.Store(&f) }

func (b *Bind) tellCrossing(id string) {
	if tell := b.onCrossing.Load(); tell != nil && *tell != nil {
		(*tell)(id)
	}
}

// GaveUp is to be called right after the device was made to give up all sessions with a
// managed peer (ExpireCurrentKeypairs). The one that a response of ours is about to begin is
// among them, though the peer does not know: it takes that response, and no part in another
// handshake before it has waited for an answer in vain.
func (b *Bind) GaveUp(id string) {
	b.mu.Lock()
	f := b.candidates[id]
	b.mu.Unlock()
	if f != nil {
		b.handshakes.gaveUp(f)
	}
}

// prove takes a path for proved in both directions.
func (b *Bind) prove(f *fanOut, ep conn.Endpoint) {
	f.setLearned(ep)
	if tell := b.onHandshake.Load(); tell != nil && *tell != nil {
		(*tell)(f.id, pathOf(ep))
	}
}

// confirm takes in that a session has begun, by a response of ours or of the peer's.
func (b *Bind) confirm(f *fanOut, ep conn.Endpoint, dead bool) {
	tell := b.onDeadSession.Load()
	if !dead || tell == nil || *tell == nil {
		b.prove(f, ep)
		return
	}
	f.setLearned(ep)
	(*tell)(f.id, pathOf(ep))
}

// respond sends our response to where the initiation came from. Only when that has been
// crowded out of memory by a flood it goes where data goes.
//
// If the response before was never followed by data it may have been lost on the way back,
// and copies of the initiation that come over paths not known to us may be the only ones
// whose answer gets through: then up to 4 of them get it, whoever sent them.
func (b *Bind) respond(f *fanOut, response []byte) error {
	index := binary.LittleEndian.Uint32(response[8:]) // receiver_index
	ep, asked := b.answers.source(index, time.Now())
	if ep != nil {
		b.observed.initiationAnswered(index, pathOf(ep), f.id)
	} else if ep = f.first(); ep == nil {
		return ErrNoCandidates
	}
	known := b.known
	vain, crossed := b.handshakes.responded(f, response, ep, asked)
	if vain {
		known = anyone
	}
	if crossed {
		b.tellCrossing(f.id)
	}
	err := b.sendDirect([][]byte{response}, ep)
	b.repeatAnswer(response, ep, known)
	return err
}

// note looks at a WireGuard message that the device is about to be given.
func (b *Bind) note(p []byte, from conn.Endpoint) {
	switch p[0] {
	case typeInitiation:
		b.answerAgain(p, from)
	case typeResponse:
		id, asked, crossed := b.handshakes.responseCame(p, from)
		b.observed.responseCame(p, pathOf(from), id, asked, time.Now())
		if crossed {
			b.tellCrossing(id)
		}
	case typeData:
		if b.handshakes.awaiting.Load() == 0 {
			return
		}
		if f, dead := b.handshakes.confirmed(p, from); f != nil {
			b.confirm(f, from, dead)
		}
	}
}
