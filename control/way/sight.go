package way

import (
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Sight is an outcome as it counts now. If the finding is from before the tunnel broke, Now is
// unknown, and Before is what was found.
type Sight struct{ Now, Before api.Outcome }

// See returns how the verdict on an endpoint of a peer counts, according to the peer's status.
// Tables and pictures show the result. For the peer's gateway it is the worst finding on the way
// there. For ours it is OK if the peer's packets arrive.
func See(p *api.PeerStatus, direction, target string) Sight {
	v := p.Reachability.On(direction, target)
	gate := &p.Reachability.Outbound.Gateway
	if v == gate {
		s := Sight{Now: v.Verdict}
		switch beside := p.Reachability.Beside; {
		case works(v) && silenced(p):
			s = Sight{api.Unknown, v.Verdict}
		case beside == api.Error || beside == api.Warning:
			s.Now = Worse(v.Verdict, beside)
		}
		return s
	}
	s := sight(v, direction, target, broken(p, gate))
	if on := p.Reachability.On(direction, api.ServiceAPIServer); causedAt[catalogue.Code(on.Code)] == target && s.Now == api.OK {
		s.Now = See(p, direction, api.ServiceAPIServer).Now
	}
	if target == api.ServiceGateway && s.Now == api.Unknown && gate.Verdict == api.Error && placeOfCode[catalogue.Code(gate.Code)] == (place{Between, api.Error, api.OK}) {
		return Sight{Now: api.OK}
	}
	return s
}

// sight returns how a verdict counts that is not about the peer's gateway. Services reached
// outside the tunnel do not break with it.
func sight(v *api.Verdict, direction, target string, broken bool) Sight {
	broken = broken && v.Via != "direct"
	inbound := direction == api.DirectionInbound
	_, ofTunnel := placeOfCode[catalogue.Code(v.Code)]
	switch o := v.Verdict; {
	case faults(o) && ofTunnel && (broken || target != api.ServiceGateway): // it follows from that
		return Sight{Now: api.Unknown}
	case broken && (works(v) || inbound && faults(o)):
		return Sight{api.Unknown, o}
	default:
		return Sight{Now: o}
	}
}

// works reports whether a verdict says that something works now, even if it comes and goes.
func works(v *api.Verdict) bool {
	return v.Verdict == api.OK || catalogue.Code(v.Code) == catalogue.Intermittent
}

func faults(o api.Outcome) bool { return o == api.Error || o == api.Warning }

// silenced reports whether a peer has stopped answering, regardless of earlier findings.
func silenced(p *api.PeerStatus) bool {
	_, doubted := suspect(p)
	return doubted || p.Shown() == api.StateUnconfirmed || p.Path.Kind == api.PathNone
}

// broken reports whether findings inside the tunnel to a peer are from before it broke, according
// to its status and the verdict on its gateway.
func broken(p *api.PeerStatus, gate *api.Verdict) bool {
	return silenced(p) || gate.Verdict == api.Error
}

// suspect returns the candidate in use if it has stopped answering and there is no better one.
func suspect(p *api.PeerStatus) (api.Candidate, bool) {
	for _, c := range p.Candidates {
		if c.State == "suspect" && c.Address == p.Path.Remote && c.Relay == p.Path.Relay {
			return c, true
		}
	}
	return api.Candidate{}, false
}
