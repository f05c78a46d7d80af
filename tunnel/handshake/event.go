package handshake

import (
	"bytes"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// EventKind is what has happened to a handshake.
type EventKind uint8

const (
	// Made: the device has made an initiation, asked or by itself, as when there is data.
	Made EventKind = iota + 1
	// Arrived: an initiation of the peer's came over a path that works, while one of ours is on its
	// way there. It waits until it is given to the device.
	Arrived
	// ResponseCame: the first response to our last initiation came, whether or not the device accepts it.
	ResponseCame
	// CookieCame: a cookie reply to it came, true or not.
	CookieCame
	// Responded: the device has answered an initiation of the peer's, and by that forgotten its own.
	Responded
	// Began: a session with a managed peer began, and the path works in both directions.
	Began
	// BeganDead: the same, but it is dead until another handshake is completed. Either we have given it
	// up before, and can send nothing by it; or our device has worked on the response while it
	// answered an initiation, and can read nothing.
	BeganDead
)

// Event is what has happened to a handshake with a peer.
type Event struct {
	Kind EventKind
	// Peer is the ID of the peer's endpoint.
	Peer string
	// Path is the one that a session began over.
	Path peer.Path
	// Initiation is the one that is offered, or has arrived.
	Initiation Initiation
}

// Initiation is a message.
type Initiation struct {
	Message []byte
	From    conn.Endpoint // nil: it is our own
}

// isCopyOf reports whether the peer has made two initiations as one: all but the type, the
// sender's index and both MACs, which anybody could make again.
func (i Initiation) isCopyOf(o Initiation) bool {
	const begin, end = 8, InitiationSize - 32
	return bytes.Equal(i.Message[begin:end], o.Message[begin:end])
}

// Hear takes in an event. reachable tells whether there is any way to the peer.
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
