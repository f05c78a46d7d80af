package handshake

import (
	"bytes"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Two initiations that cross undo each other: each device answers the other's, thereby discards its
// own, and then rejects the answer to it. So one side, chosen by the keys, does not answer at once.
// If its own initiation is answered, the other one was not needed. If not, its own may have been
// lost, and the held one goes to the device.
//
// An initiation that comes after a response to ours has not crossed it: by sending it, the peer
// discards what it has just answered, and waits for us. Both sides hold it only until the device
// has processed that response, since processing both at once might break both.
//
// This is done only for initiations on paths that are known to work, as the underlay says.
// Elsewhere ours has most likely not been heard, because the peer does not know us yet or a NAT is
// still closed, and waiting for an answer is useless.

const (
	// crossingTime is how long our initiation and its response may take for the peer's initiation
	// to have crossed it: most round trips on earth are shorter. A peer whose initiation alone gets
	// through waits this much longer at most.
	crossingTime = 250 * time.Millisecond
	// mostHeld bounds the held initiations of one peer, forged ones and copies included. Further
	// ones go to the device at once.
	mostHeld = 8
)

// Yields breaks the tie when both sides dial at once: it reports whether own yields to other. The side
// with the greater key does, and both know the keys.
func Yields(own, other peer.PublicKey) bool { return bytes.Compare(own[:], other[:]) > 0 }

// held is a waiting initiation. A late one came after a response to ours.
type held struct {
	Initiation
	late bool
}

// arrived decides on an initiation from the peer. A copy of a held one is held as well, since its
// path is to have the answer, too.
func (m *Machine) arrived(now time.Time, in Initiation) {
	late, since := !m.offer.responseAt.IsZero(), m.outstandingSince()
	i := slices.IndexFunc(m.held, func(h held) bool { return h.isCopyOf(in) })
	switch {
	case i >= 0 && len(m.held) < mostHeld:
		m.held = append(m.held, held{in, m.held[i].late})
	case i >= 0:
	case !m.outstanding(now) || !late && m.Yields || len(m.held) == mostHeld:
		m.give = append(m.give, in)
	default:
		m.held = append(m.held, held{in, late})
		m.heldUntil = sooner(m.heldUntil, since.Add(crossingTime))
	}
}

// outstandingSince is since when the device has been waiting for an answer to an initiation, or for
// us to pass on the answer that came.
func (m *Machine) outstandingSince() time.Time {
	if !m.offer.responseAt.IsZero() {
		return m.offer.responseAt
	}
	return m.offer.sentAt
}

// outstanding reports whether it may still be waiting.
func (m *Machine) outstanding(now time.Time) bool {
	return m.offer.message != nil && now.Sub(m.outstandingSince()) < crossingTime
}

// release stops holding, and gives the device some of the held initiations.
func (m *Machine) release(which func(held) bool) {
	for _, h := range m.held {
		if which(h) {
			m.give = append(m.give, h.Initiation)
		}
	}
	m.held, m.heldUntil = nil, time.Time{}
}
