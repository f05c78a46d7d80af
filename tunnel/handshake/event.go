package handshake

import (
	"bytes"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// EventKind is what happened to a handshake.
type EventKind uint8

const (
	// Made: the device has made an initiation, on request or by itself, for example to send data.
	Made EventKind = iota + 1
	// Arrived: an initiation from the peer arrived on a working path while ours is on its way
	// there. It waits until it is given to the device.
	Arrived
	// ResponseCame: the first response to our last initiation arrived, whether or not the device
	// accepts it.
	ResponseCame
	// CookieCame: a cookie reply to it arrived, authentic or not.
	CookieCame
	// Responded: the device has answered an initiation from the peer, and so discarded its own.
	Responded
	// Began: a session with a managed peer began, and the path works in both directions.
	Began
	// BeganDead: the same, but the session is dead until another handshake completes. Either we
	// discarded it before, and cannot send in it; or our device processed the response while it
	// answered an initiation, and cannot read in it.
	BeganDead
)

// Event is something that happened to a handshake with a peer.
type Event struct {
	Kind EventKind
	// Peer is the ID of the peer's endpoint.
	Peer string
	// Path is the path that a session began on.
	Path peer.Path
	// Initiation is the one that was made or has arrived.
	Initiation Initiation
}

// Initiation is a handshake initiation message.
type Initiation struct {
	Message []byte
	From    conn.Endpoint // nil: it is our own
}

// isCopyOf reports whether the peer made both as one initiation: all but the type, the sender's
// index and both MACs, which anyone could recompute, is equal.
func (i Initiation) isCopyOf(o Initiation) bool {
	const begin, end = 8, InitiationSize - 32
	return bytes.Equal(i.Message[begin:end], o.Message[begin:end])
}

// Hear handles an event. reachable reports whether there is any path to the peer.
func (m *Machine) Hear(now time.Time, e Event, reachable bool) {
	switch e.Kind {
	case Made:
		m.made(now, e.Initiation.Message, reachable)
	case Arrived:
		m.arrived(now, e.Initiation)
	case ResponseCame:
		m.responded(now)
	case CookieCame:
		m.cookieDue(now)
	case Responded:
		m.answered(now)
	case Began, BeganDead:
		m.began(now, e.Path, e.Kind == BeganDead)
	}
}
