package tunnel

import (
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

const (
	// silenceLimit is how long a peer may be sent data without an answer. WireGuard
	// itself waits 15 s. A flow in one direction only, whose receiver keeps quiet for
	// up to 10 s (whitepaper §6.5), costs a handshake by this and nothing else.
	silenceLimit = 5 * time.Second
	// quietLimit is when whoever runs above is asked to send something that is answered for
	// sure, so that the last segment of a connection, which is not, is taken for no silence.
	quietLimit = 2 * time.Second
	// firstRetry and lastRetry bound the growing pause between dials.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// newPathWait is how long after a dial a path that is new, or known to work only since,
	// is tried, at first: the pause doubles until it is firstRetry, so that paths that change
	// all the time cost no more than that. An initiation makes the one before it void, so
	// most answers to that should have come by then.
	newPathWait = 250 * time.Millisecond
	// answerLag is how far apart a peer's answer to an initiation and its first data may come,
	// when the former reached it at the same time as what it begins the session with.
	answerLag = 50 * time.Millisecond
	// tieBreakDelay is how long one of two sides waits for the other's initiation, which follows a
	// probe by which the path was found, as a rule, within milliseconds.
	tieBreakDelay = 20 * time.Millisecond
	// sessionLifetime is how long a session's keys are accepted (whitepaper §6.2).
	sessionLifetime = 180 * time.Second
	// Lengths in bytes of a keepalive and of a handshake initiation (whitepaper §5.4).
	keepaliveSize  = 32
	initiationSize = 148
)

// watch follows one peer and says when to dial it. It holds no clock and sends nothing:
// it is fed the device's counters and asked what is due.
//
//	waiting ──(endpoints given, or sending ≥ 5 s unanswered)──▶ dialling
//	dialling ──(a handshake completed, or session data arrives)──▶ waiting
//
// While dialling, nextTry is set. Dials repeat until they are answered. An initiation
// of the other side's is no answer: ours may not get through to it, and two that cross
// on the way undo each other.
type watch struct {
	rx, tx uint64 // bytes, as last read
	// lastHandshake is the device's, by the clock on the wall; shookAt is when it was first
	// seen. Ages are reckoned from the latter, so that no clock that is set ends a session.
	lastHandshake, shookAt time.Time
	// endpoint is the device's text for the peer's, as last read: reading it as a path again
	// each time costs most of a reading.
	endpoint string
	parsed   peer.Path // zero when it is none
	// source is the path that an authenticated packet last came over, an initiation
	// included: it is worth dialling.
	source peer.Path
	// proven is source once a session has been there: initiations are authenticated
	// without the preshared key, and do not show that ours get through.
	proven peer.Path
	// heardAt is when the peer last answered or sent within a session.
	heardAt time.Time
	// unansweredSince is when something that wants an answer was first sent after the
	// last one.
	unansweredSince time.Time
	// begun is set by the first dial, or what the device has sent in its place.
	begun bool
	// lost says that a dial gave the session up, or that it was dead from the start, and no
	// other was made since. With a managed peer it is the underlay that tells which handshake
	// made one: the device also tells of those that came to nothing.
	lost, managed bool
	// attempts counts dials since the last answer.
	attempts int
	// nextTry is when to dial; zero means not to. dialledAt is when it last was done.
	nextTry, dialledAt time.Time
	// hasty says that the next dial is for a path that is new, or known to work only since;
	// hastened how many dials for such followed one upon the other, as far as it matters.
	hasty    bool
	hastened int

	// Whether the path selected for a managed peer is silent: since when it is selected,
	// how many dials there had been by then, and whether its silence was told.
	selectedAt       time.Time
	selectedAttempts int
	told             bool
	// asked says that a peer's quietness was told.
	asked bool
}

// observe takes in what the device says of the peer.
func (w *watch) observe(now time.Time, s uapi.Peer) {
	rx, tx := growth(w.rx, s.RxBytes), growth(w.tx, s.TxBytes)
	shook := !s.LastHandshake.IsZero() && !s.LastHandshake.Equal(w.lastHandshake)
	w.rx, w.tx, w.lastHandshake = s.RxBytes, s.TxBytes, s.LastHandshake
	if shook {
		w.shookAt = now
	}
	// The underlay's stand-in for the candidates is no path; whatever else is there was
	// put by an authenticated packet.
	if s.Endpoint != w.endpoint {
		w.endpoint = s.Endpoint
		if p, err := peer.ParsePath(s.Endpoint); err == nil {
			w.parsed = p
		} else {
			w.parsed = peer.Path{}
		}
	}
	if w.parsed.IsValid() {
		w.source = w.parsed
	}
	if shook && (!w.lost || !w.managed) || w.session(now) && rx%initiationSize != 0 {
		w.heard(now)
		return
	}
	if wantsAnswer(tx) && w.unansweredSince.IsZero() {
		w.unansweredSince = now
	}
	if w.nextTry.IsZero() && !w.unansweredSince.IsZero() && now.Sub(w.unansweredSince) >= silenceLimit {
		w.nextTry = now
	}
}

// heard takes in that the peer answered, or sent within a session.
func (w *watch) heard(now time.Time) {
	w.lost = false
	w.heardAt, w.proven = now, w.source
	w.unansweredSince, w.attempts, w.nextTry = time.Time{}, 0, time.Time{}
	w.selectedAttempts, w.told, w.asked = 0, false, false
	w.hasty, w.hastened = false, 0
}

// growth of a counter, which starts over when a peer is removed and added again.
func growth(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

// wantsAnswer reports whether bytes sent within a tick were more than one or two
// keepalives, which nobody answers.
func wantsAnswer(tx uint64) bool { return tx != 0 && tx != keepaliveSize && tx != 2*keepaliveSize }

// alive reports whether there is a session that has not been found silent.
func (w *watch) alive(now time.Time) bool { return w.nextTry.IsZero() && w.session(now) }

// session reports whether there are keys that the peer may still accept.
func (w *watch) session(now time.Time) bool {
	return !w.lost && !w.lastHandshake.IsZero() && now.Sub(w.shookAt) < sessionLifetime
}

// due reports whether to dial now.
func (w *watch) due(now time.Time) bool { return !w.nextTry.IsZero() && !now.Before(w.nextTry) }

// restart asks for a dial at the time, and for quick retries after it.
func (w *watch) restart(t time.Time) { w.attempts, w.selectedAttempts, w.nextTry = 0, 0, t }

// hasten is restart, later if the last dial has not had its time by then.
func (w *watch) hasten(at time.Time) {
	if earliest := w.dialledAt.Add(min(newPathWait<<w.hastened, firstRetry)); !w.dialledAt.IsZero() && earliest.After(at) {
		at = earliest
	}
	if !w.nextTry.IsZero() && w.nextTry.Before(at) {
		at = w.nextTry
	}
	w.restart(at)
	w.hasty = true
}

// crossed takes in that the last initiation was undone by one of the peer's that crossed it.
// The next dial is soon, unless the peer shows before that it has a session all the same; and
// not within the 20 ms in which it takes but one. The pauses after it grow as ever.
func (w *watch) crossed(now time.Time) {
	w.begun = true // The device may have sent it by itself, and would send no other one for 5 s.
	if at := now.Add(answerLag); w.nextTry.IsZero() || at.Before(w.nextTry) {
		w.nextTry = at
	}
}

// renew asks for a dial at the end of the wait, unless a handshake completes before, or
// did so within as long before now.
func (w *watch) renew(now time.Time, wait time.Duration) {
	just := !w.shookAt.IsZero() && now.Sub(w.shookAt) < wait
	soon := !w.nextTry.IsZero() && w.nextTry.Before(now.Add(wait))
	if !just && !soon {
		w.restart(now.Add(wait))
	}
}

// force reports whether a dial has to give up the session, so that the device sends an
// initiation also within 5 s of its last one. The first dial must not undo one that the
// device has just sent by itself, to start its keepalives: the other side takes only one
// in 20 ms.
func (w *watch) force(now time.Time) bool {
	lately := !w.heardAt.IsZero() && now.Sub(w.heardAt) < silenceLimit
	return w.lost || w.begun && !w.session(now) && !lately
}

// givenUp notes that a dial has just given up what sessions there were. What was heard while
// it was begun does not end it.
func (w *watch) givenUp(now time.Time, managed bool) {
	w.lost, w.managed = true, managed
	if w.nextTry.IsZero() {
		w.nextTry = now.Add(firstRetry)
	}
}

// deadOnArrival takes in that a session with a managed peer was begun, over a path, that is dead.
// It asks for another dial as soon as the last one has had its time, and the peer a moment to
// answer it: what the peer begins with is sent before that answer.
func (w *watch) deadOnArrival(now time.Time, p peer.Path) {
	w.source, w.proven = p, p
	w.lost, w.managed = true, true
	w.nextTry = now.Add(answerLag)
	if earliest := w.dialledAt.Add(newPathWait); earliest.After(w.nextTry) {
		w.nextTry = earliest
	}
}

// completed takes in that a handshake with a managed peer was, over a path.
func (w *watch) completed(now time.Time, p peer.Path) {
	w.source, w.proven = p, p
	if w.lost {
		w.heard(now)
	}
}

// selected notes that data takes another path from now on, which is yet to be judged.
func (w *watch) selected(now time.Time) {
	w.selectedAt, w.selectedAttempts, w.told = now, w.attempts, false
}

// quiet reports, once until the peer answers, that data has gone unanswered for 2 s.
func (w *watch) quiet(now time.Time) bool {
	if w.asked || w.unansweredSince.IsZero() || now.Sub(w.unansweredSince) < quietLimit {
		return false
	}
	w.asked = true
	return true
}

// silent reports, once until the peer answers or another path is selected, that data has
// gone unanswered for 5 s over the selected path, or two dials have.
func (w *watch) silent(now time.Time) bool {
	since := w.unansweredSince
	if w.selectedAt.After(since) && !since.IsZero() {
		since = w.selectedAt
	}
	quiet := !since.IsZero() && now.Sub(since) >= silenceLimit
	if w.told || !quiet && (w.attempts-w.selectedAttempts < 2 || !w.due(now)) {
		return false
	}
	w.told = true
	return true
}

// dialled notes a dial and sets when to try again: after 1, 2, 4 … 30 s and up to a
// quarter of that more. Initiations of both sides that cross on the way undo each
// other; so that they do not do it again, one of the two sides, which has yield set,
// waits half as long again.
func (w *watch) dialled(now time.Time, yield bool) {
	pause := lastRetry
	if w.attempts < 5 {
		pause = min(firstRetry<<w.attempts, lastRetry)
	}
	switch since := now.Sub(w.dialledAt); {
	case since > 2*firstRetry:
		w.hastened = 0
	case w.hasty:
		w.hastened = min(w.hastened+1, 2)
	}
	w.begun, w.dialledAt, w.hasty = true, now, false
	w.attempts++
	w.nextTry = now.Add(pause + rand.N(pause/4))
	if yield {
		w.nextTry = w.nextTry.Add(pause / 2)
	}
}
