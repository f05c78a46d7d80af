package relay

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// mostHeld bounds the datagrams that wait for permissions: as many as are asked for at
	// once.
	mostHeld = askAtOnce
	// heldFor is how long one waits at most. Its sender has sent another by then.
	heldFor = time.Second
)

// heldDatagram waits for the server's permission to send it on.
type heldDatagram struct {
	packet []byte
	to     netip.AddrPort
	at     time.Time
}

// held are datagrams to addresses whose permission has been asked for, oldest first. Whoever
// hears of an allocation sends handshakes and probes through it at once, a round trip before
// the server lets them pass, and repeats them a second later. The last of each kind to each
// destination is kept; two initiations that arrive together would undo each other.
type held []heldDatagram

// add keeps a datagram, and says whether one was dropped for it, or it itself.
func (h *held) add(packet []byte, to netip.AddrPort, now time.Time) (dropped bool) {
	if len(packet) == 0 || packet[0] == wireGuardData {
		return true // A session can wait; what it carries is repeated in time.
	}
	before := len(*h)
	*h = slices.DeleteFunc(*h, func(d heldDatagram) bool { return d.to == to && d.packet[0] == packet[0] })
	dropped = len(*h) < before
	if len(*h) == mostHeld {
		*h = slices.Delete(*h, 0, 1)
		dropped = true
	}
	*h = append(*h, heldDatagram{slices.Clone(packet), to, now})
	return dropped
}

// answered takes out what is not asked for any more: the datagrams to be sent, and how many
// others are too late, or not wanted.
func (h *held) answered(states map[netip.Addr]permissionState, now time.Time) (send []heldDatagram, dropped int) {
	*h = slices.DeleteFunc(*h, func(d heldDatagram) bool {
		switch state := states[d.to.Addr()]; {
		case state == asked:
			return false
		case state == granted && now.Sub(d.at) < heldFor:
			send = append(send, d)
		default:
			dropped++
		}
		return true
	})
	return send, dropped
}
