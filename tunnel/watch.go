package tunnel

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
)

const (
	// silenceLimit is how long a peer may be sent data without an answer. WireGuard
	// itself waits 15 s. A flow in one direction only, whose receiver keeps quiet for
	// up to 10 s (whitepaper §6.5), costs a handshake by this and nothing else.
	silenceLimit = 5 * time.Second
	// firstRetry and lastRetry bound the growing pause between dials.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
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
	rx, tx        uint64 // bytes, as last read
	lastHandshake time.Time
	// source is the address that an authenticated packet last came from, an initiation
	// included: it is worth dialling.
	source netip.AddrPort
	// proven is source once a session has been there: initiations are authenticated
	// without the preshared key, and do not show that ours get through.
	proven netip.AddrPort
	// heardAt is when the peer last answered or sent within a session.
	heardAt time.Time
	// unansweredSince is when something that wants an answer was first sent after the
	// last one.
	unansweredSince time.Time
	// begun is set by the first dial.
	begun bool
	// attempts counts dials since the last answer.
	attempts int
	// nextTry is when to dial; zero means not to.
	nextTry time.Time
}

// observe takes in what the device says of the peer.
func (w *watch) observe(now time.Time, s uapi.Peer) {
	rx, tx := growth(w.rx, s.RxBytes), growth(w.tx, s.TxBytes)
	shook := s.LastHandshake.After(w.lastHandshake)
	w.rx, w.tx, w.lastHandshake = s.RxBytes, s.TxBytes, s.LastHandshake
	// The underlay's stand-in for the candidates is no address; whatever else is there
	// was put by an authenticated packet.
	if addr, err := netip.ParseAddrPort(s.Endpoint); err == nil {
		w.source = addr
	}
	if shook || w.session(now) && rx%initiationSize != 0 {
		w.heardAt, w.proven = now, w.source
		w.unansweredSince, w.attempts, w.nextTry = time.Time{}, 0, time.Time{}
		return
	}
	if wantsAnswer(tx) && w.unansweredSince.IsZero() {
		w.unansweredSince = now
	}
	if w.nextTry.IsZero() && !w.unansweredSince.IsZero() && now.Sub(w.unansweredSince) >= silenceLimit {
		w.nextTry = now
	}
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
	return !w.lastHandshake.IsZero() && now.Sub(w.lastHandshake) < sessionLifetime
}

// due reports whether to dial now.
func (w *watch) due(now time.Time) bool { return !w.nextTry.IsZero() && !now.Before(w.nextTry) }

// restart asks for a dial at the time, and for quick retries after it.
func (w *watch) restart(t time.Time) { w.attempts, w.nextTry = 0, t }

// dialled notes a dial and sets when to try again: after 1, 2, 4 … 30 s and up to a
// quarter of that more. Initiations of both sides that cross on the way undo each
// other; so that they do not do it again, one of the two sides, which has yield set,
// waits half as long again.
func (w *watch) dialled(now time.Time, yield bool) {
	pause := lastRetry
	if w.attempts < 5 {
		pause = min(firstRetry<<w.attempts, lastRetry)
	}
	w.begun = true
	w.attempts++
	w.nextTry = now.Add(pause + rand.N(pause/4))
	if yield {
		w.nextTry = w.nextTry.Add(pause / 2)
	}
}
