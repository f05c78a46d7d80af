package relay

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// maxHeld bounds the handshakes that wait for permissions: as many as permissions are
	// requested at once.
	maxHeld = askAtOnce
	// heldFor is how long one waits at most. By then its sender has sent another.
	heldFor = time.Second
)

// heldDatagram waits for the server's permission.
type heldDatagram struct {
	packet []byte
	to     netip.AddrPort
	at     time.Time
}

// held are WireGuard handshake messages to addresses whose permission has been requested, oldest
// first. Whoever learns of an allocation sends them at once, a round trip before the server lets
// them pass, and would only repeat them a second later. The last of each type to each destination
// is kept; two initiations that arrive together would undo each other. Probes are repeated sooner,
// and would measure the wait.
type held []heldDatagram

// add keeps a datagram, and reports whether one was dropped for it, or it itself.
func (h *held) add(packet []byte, to netip.AddrPort, now time.Time) (dropped bool) {
	if !isHandshake(packet) {
		return true
	}
	before := len(*h)
	*h = slices.DeleteFunc(*h, func(d heldDatagram) bool { return d.to == to && d.packet[0] == packet[0] })
	dropped = len(*h) < before
	if len(*h) == maxHeld {
		*h = slices.Delete(*h, 0, 1)
		dropped = true
	}
	*h = append(*h, heldDatagram{slices.Clone(packet), to, now})
	return dropped
}

// isHandshake reports whether a datagram is a WireGuard handshake message: types 1 to 3, followed
// by three zeros (whitepaper §5.4).
func isHandshake(p []byte) bool {
	return len(p) > 4 && p[0] >= 1 && p[0] < wireGuardData && p[1]|p[2]|p[3] == 0
}

// answered removes what is no longer waiting: the datagrams to send, and the number of those that
// are too late, or not wanted.
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
