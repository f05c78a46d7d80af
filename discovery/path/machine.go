package path

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Machine finds and keeps the path to one peer. It is not safe for concurrent use. Every
// input takes the time first, which does not run backwards; after each input, and at the
// time that [Machine.Poll] gave, Poll says what to do.
type Machine struct {
	o Options
}

// New makes a machine that knows nothing yet.
func New(o Options) *Machine { return &Machine{o: o} }

// SetLocal tells what the own side has to offer.
func (m *Machine) SetLocal(now time.Time, l Local) {}

// SetRemote tells the peer's candidates: those from a ticket, the configuration or the
// last run, or, announced, those that the peer told in-band other than by [Message].
// Each call replaces the former list of its kind; announced ones that are gone linger
// for five minutes.
func (m *Machine) SetRemote(now time.Time, cs []Candidate, announced bool) {}

// Receive takes a message of the peer's machine.
func (m *Machine) Receive(now time.Time, msg Message) {}

// Sent tells what became of a probe: its transaction, or an error. It must be called
// before the answer can arrive; when the write fails after that, call it again with the
// error.
func (m *Machine) Sent(now time.Time, id uint64, tx stunwire.TxID, err error) {}

// Answered tells of the authenticated answer to a probe, the way it came, and our own
// address as the peer saw it.
func (m *Machine) Answered(now time.Time, tx stunwire.TxID, from peer.Path, mapped netip.AddrPort) {}

// Requested tells of an authenticated, fresh probe of the peer; rebooted, that the peer
// was started anew since its last one.
func (m *Machine) Requested(now time.Time, from peer.Path, rebooted bool) {}

// HandshakeDone tells that a handshake was completed over a path.
func (m *Machine) HandshakeDone(now time.Time, over peer.Path) {}

// Silent tells that what the tunnel sends over the selected path is not answered.
func (m *Machine) Silent(now time.Time) {}

// Traffic tells that the tunnel carried more than keepalives since the last call. Once a
// second is often enough.
func (m *Machine) Traffic(now time.Time) {}

// NetworkChanged tells that the own addresses changed or that the process was suspended.
func (m *Machine) NetworkChanged(now time.Time) {}

// Poll says what to do now and when to call again at the latest.
func (m *Machine) Poll(now time.Time) (Actions, time.Time) { return Actions{}, now.Add(time.Hour) }

// Snapshot is what is known at present.
func (m *Machine) Snapshot() Snapshot { return Snapshot{Kind: KindNone} }
