package way

import (
	"net/netip"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// place is where a fault is. For an error it also has the states of the edges between the
// sides: in the direction in which it was found, and in the other. If both are empty, the round
// trip fails, or only the direction if the stage is oneWay.
type place struct {
	at          Kind
	forth, back api.Outcome
}

// placeOfCode has the codes whose stage does not determine the place.
var placeOfCode = map[catalogue.Code]place{
	// One side cannot tell which direction is blocked, or whether the peer is there at all.
	catalogue.PeerSilent:      {Between, api.Unknown, api.Unknown},
	catalogue.HandshakeStale:  {Between, api.Unknown, api.Unknown},
	catalogue.PathInterrupted: {Between, api.Unknown, api.Unknown},
	catalogue.PeerMustDial:    {Between, api.Unknown, api.Unknown},
	catalogue.NotHeardByPeer:  {Between, api.Error, api.OK},
	catalogue.PingLost:        probed,
	catalogue.PacketsLost:     {at: Between},
	catalogue.ProbesDropped:   {at: Between},
	catalogue.PathSlow:        {at: Between},
	catalogue.RateLimited:     {at: Between},
	// Packets do not leave this side, or are lost on the way.
	catalogue.NoRoute:        {Here, api.Unknown, api.Unknown},
	catalogue.LinkDown:       {Here, api.Unknown, api.Unknown},
	catalogue.SendProhibited: {Here, api.Unknown, api.Unknown},
	catalogue.SendFails:      {Here, api.Unknown, api.Unknown},
	catalogue.KeyElsewhere:   {Here, api.Unknown, api.Unknown},
	catalogue.ResolverSilent: {Here, api.Unknown, api.Unknown},
	catalogue.NextHopSilent:  {Here, api.Unknown, api.Unknown},
	catalogue.NothingAnswers: {NAT, api.Error, api.Error},
	catalogue.RouterRefuses:  {Router, api.OK, api.OK}, // it has answered
	// The peer's address is wrong, or closed.
	catalogue.NameUnknown:       {Far, api.Unknown, api.Unknown},
	catalogue.EndpointOfAnother: {Far, api.Unknown, api.Unknown},
	catalogue.NameMoved:         {Far, api.Unknown, api.Unknown},
	catalogue.PrivateAdvertised: {Far, api.Unknown, api.Unknown},
	catalogue.NoWayIn:           {Far, api.Unknown, api.Unknown},
	// Something from the peer arrived.
	catalogue.NothingListens:      {There, api.OK, api.Unknown},
	catalogue.PeerRestarts:        {There, api.Unknown, api.Unknown},
	catalogue.WrongPeerKey:        {There, api.Unknown, api.OK},
	catalogue.AwaitingApproval:    {There, api.OK, api.OK},
	catalogue.PresharedKeyDiffers: {There, api.OK, api.OK},
	catalogue.StampInPast:         {There, api.OK, api.OK},
	catalogue.DuplicateKey:        {There, api.OK, api.OK},
	catalogue.RelayInUse:          {Relay, api.OK, api.OK},
	catalogue.RelayLost:           {Relay, api.Unknown, api.Unknown},
	catalogue.TurnUnreachable:     {Relay, api.Unknown, api.Unknown},
	catalogue.ProxyRefuses:        {Here, api.Unknown, api.Unknown},
}

// stages has the places of other findings about the tunnel. For any other stage it is unknown what
// was passed.
var stages = map[string]place{
	"resolve": {Far, api.Unknown, api.Unknown},
	"mtu":     {at: Between},
	oneWay:    {at: Between},
}

// partial reports whether only some packets are lost.
func (s place) partial() bool { return s.at == Between && s.forth == "" }

// silent reports whether it is only known that there is no answer.
func (s place) silent() bool { return s == place{Between, api.Unknown, api.Unknown} }

// probed is the place of a silence while probes are answered: a clock or a firewall stops only
// handshakes.
var probed = place{Between, api.OK, api.OK}

// Silent reports whether it is only known about a peer that it does not answer, by the verdict on
// its gateway.
func Silent(v *api.Verdict) bool {
	return v.Verdict == api.Error && placeOf(&api.Check{Target: api.ServiceGateway, Verdict: *v}).silent()
}

// oneWay is the stage of what connections measure of their sending direction.
const oneWay = "traffic"

// outward are prefixes of the names of this gateway's own checks about what is in front of it.
var outward = []string{"exposure", "portmap", "service", "node-addresses"}

// placeOf returns the place of a check's finding.
func placeOf(c *api.Check) place {
	if ServiceOf(c) != "" {
		return place{at: Service}
	}
	if catalogue.Code(c.Code) == catalogue.Intermittent && c.Direction != api.DirectionOwn {
		return place{at: Between}
	}
	if s, ok := placeOfCode[catalogue.Code(c.Code)]; ok {
		if _, err := netip.ParseAddr(c.By); s.at == Router && err != nil {
			return place{Between, api.Error, api.Unknown}
		}
		if c.Direction == api.DirectionOwn && s.at == Far {
			s.at = NAT // the same for this side
		}
		return s
	}
	if c.Direction == api.DirectionOwn {
		for _, name := range outward {
			if strings.HasPrefix(c.Name, name) {
				return place{NAT, api.Unknown, api.Unknown}
			}
		}
		return place{Here, api.Unknown, api.Unknown}
	}
	if s, ok := stages[c.Stage]; ok {
		return s
	}
	return place{Between, api.Unknown, api.Unknown}
}

// causedAt maps codes to the service that causes a fault found by the check of another service.
var causedAt = map[catalogue.Code]string{
	// The API server demands, or refuses, what auth has not issued.
	catalogue.IdentityMissing: api.ServiceAuth,
	catalogue.IdentityExpired: api.ServiceAuth,
}

// upstream is the prefix of the names of checks of the servers behind this gateway's services.
const upstream = "upstream-"

// ServiceOf returns the name of the service that a check is about; empty for those about the
// tunnel, and for those of this gateway by itself.
func ServiceOf(c *api.Check) string {
	switch {
	case c.Direction == api.DirectionOwn:
		name, _ := strings.CutPrefix(c.Name, upstream)
		if name == c.Name {
			return ""
		}
		return name
	case c.Target == api.ServiceGateway:
		return ""
	}
	return c.Target
}
