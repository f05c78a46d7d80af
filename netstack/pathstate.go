package netstack

import (
	"net/netip"

	"github.com/postern-dev/postern/netstack/sender"
)

// PathState describes the path to a peer, as measured by the connections over it.
type PathState struct {
	sender.State
	Connections int
}

// PathChanged reports that packets to a peer take another path from now on. What was learned of the
// old one is forgotten. It takes any of the peer's overlay addresses.
func (s *Stack) PathChanged(remote netip.Addr) {
	s.dev.flows.change(remote, func(p *peerFlows) { p.path.Changed(s.dev.flows.now()) })
}

// PathState describes the path to a peer, given any of its overlay addresses. ok is false if there
// was no connection over it recently, or if it is short (see the README).
func (s *Stack) PathState(remote netip.Addr) (state PathState, ok bool) {
	s.dev.flows.look(remote, func(p *peerFlows) {
		state, ok = PathState{p.path.State(s.dev.flows.now()), p.count}, true
	})
	return state, ok
}

// Outstanding returns how much of a connection's data is not acknowledged: waiting bytes are to be
// sent when the path has room, inFlight ones are sent. ok is false for a connection over a short
// path (see the README), whose data gVisor sends.
func (c *Conn) Outstanding() (waiting, inFlight int, ok bool) {
	f := c.share.below
	if f == nil {
		return 0, 0, false
	}
	f.peer.mu.Lock()
	defer f.peer.mu.Unlock()
	if f.sending != nil && !f.gone {
		waiting, inFlight = f.sending.Sent().To(f.end), f.sending.InFlight()
	}
	return waiting, inFlight, true
}
