package handshake

import (
	"bytes"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Two initiations that cross undo each other: each device answers the other's, forgets its
// own by that, and then takes the answer for one to nothing. So one side, which both know by
// their keys, does not answer at once. If its own initiation is answered, the other was
// needless. If not, it may have been lost, and what was held goes to the device.
//
// One that comes after a response to ours has not crossed it: the peer gives up with it what
// it has just answered, and waits for us. It is held, on either side, only until the device
// has taken that response: it would work on both at once, and might get neither right.
//
// That is done only for what comes over paths that are known to work, as the underlay says:
// elsewhere an initiation of ours has most likely not been heard, by a peer that does not
// know us yet or through a NAT that is still closed, and waiting for its answer is in vain.

const (
	// crossingTime is how long an initiation of ours may be on its way, and its response on
	// the way back, for a peer's to have crossed it: most round trips on earth are shorter.
	// By this, a peer whose initiation alone gets through waits longer at the most.
	crossingTime = 250 * time.Millisecond
	// mostHeld bounds what is held of one peer's, forged ones and copies among them. What comes
	// after them goes to the device at once.
	mostHeld = 8
)

// Yields reports whether own gives way to other when both dial at once: the greater key does, which
// both sides know.
func Yields(own, other peer.PublicKey) bool { return bytes.Compare(own[:], other[:]) > 0 }

// held is an initiation that waits. A late one came after a response to ours.
type held struct {
	Initiation
	late bool
}

// arrived decides on an initiation of the peer's. A copy of one that is held is held as well: the
// path that it came over is to have its answer.
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

// outstandingSince is since when the device waits for an answer to an initiation, or for us to
// take the one that came.
func (m *Machine) outstandingSince() time.Time {
	if !m.offer.responseAt.IsZero() {
		return m.offer.responseAt
	}
	return m.offer.sentAt
}

// outstanding reports whether it may do so still.
func (m *Machine) outstanding(now time.Time) bool {
	return m.offer.message != nil && now.Sub(m.outstandingSince()) < crossingTime
}

// release ends the holding, and gives the device some of what was held.
func (m *Machine) release(which func(held) bool) {
	for _, h := range m.held {
		if which(h) {
			m.give = append(m.give, h.Initiation)
		}
	}
	m.held, m.heldUntil = nil, time.Time{}
}
