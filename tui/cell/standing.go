package cell

import (
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

// Standing is a peer's overall condition: one that the gateway calls connected may have become
// silent since.
type Standing int

// Standings, the most urgent first.
const (
	Failed      Standing = iota
	Silent               // it does not answer, for unknown reasons
	Broken               // a check found why nothing gets through
	Unconfirmed          // it has not answered for some seconds
	Faulty               // connected, and an endpoint in either direction or something on the path fails
	Connecting           // being tried
	Pending              // waits for approval
	Other                // in a state that this version does not know
	Warned               // connected, and works with warnings
	Connected
)

// StandingOf returns a peer's standing.
func StandingOf(p *api.PeerStatus) Standing {
	switch p.Shown() {
	case api.StateFailed:
		return Failed
	case api.StateConnecting:
		if g := &p.Reachability.Outbound.Gateway; g.Verdict == api.Error && !way.Silent(g) {
			return Broken
		}
		return Connecting
	case api.StatePending:
		return Pending
	case api.StateConnected, api.StateUnconfirmed:
	default:
		return Other
	}
	out, in := &p.Reachability.Outbound, &p.Reachability.Inbound
	fails, warns := false, slices.ContainsFunc(p.Local, func(l api.Local) bool { return l.Error != "" })
	for _, o := range [...]api.Outcome{out.Auth.Verdict, out.APIServer.Verdict, in.Auth.Verdict, in.APIServer.Verdict, in.Gateway.Verdict, p.Reachability.Beside} {
		fails, warns = fails || o == api.Error, warns || o == api.Warning
	}
	switch {
	case way.Silent(&out.Gateway):
		return Silent
	case out.Gateway.Verdict == api.Error:
		return Broken
	case p.Shown() == api.StateUnconfirmed:
		return Unconfirmed
	case fails:
		return Faulty
	case warns || out.Gateway.Verdict == api.Warning:
		return Warned
	}
	return Connected
}

// Standings returns the standings that are counted, the best first.
func Standings() []Standing {
	return []Standing{Connected, Faulty, Unconfirmed, Broken, Silent, Connecting, Pending, Failed}
}

// Counted returns the standing under which a peer is counted.
func (s Standing) Counted() Standing {
	if s == Warned {
		return Connected
	}
	return s
}

// Works reports whether there is a tunnel, as far as is known.
func (s Standing) Works() bool { return s == Faulty || s == Warned || s == Connected }

// Cell returns its glyph and word.
func (s Standing) Cell() Cell {
	switch s {
	case Failed:
		return State(api.StateFailed)
	case Silent:
		return Cell{"✗ silent", Bad}
	case Broken:
		return Cell{"✗ broken", Bad}
	case Unconfirmed:
		return State(api.StateUnconfirmed)
	case Faulty:
		return Cell{"! faulty", Wary}
	case Connecting:
		return State(api.StateConnecting)
	case Pending:
		return State(api.StatePending)
	}
	return State(api.StateConnected)
}

// PeerState returns a peer's standing, or its state if that is unknown.
func PeerState(p *api.PeerStatus) Cell {
	if s := StandingOf(p); s != Other {
		return s.Cell()
	}
	return State(p.State)
}
