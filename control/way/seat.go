package way

import (
	"net/netip"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// seat is where a fault is, and if it is an error what it tells of the edges between the sides:
// in the direction in which it was found, and in the other. Where both are empty, what fails is
// the round trip, or the direction alone if the stage is oneWay.
type seat struct {
	at          Kind
	forth, back api.Outcome
}

// seats are those of codes whose stage does not tell.
var seats = map[catalogue.Code]seat{
	// From one side it cannot be told which direction is blocked, or whether anyone is there.
	catalogue.PeerSilent:     {Between, api.Unknown, api.Unknown},
	catalogue.HandshakeStale: {Between, api.Unknown, api.Unknown},
	catalogue.PeerMustDial:   {Between, api.Unknown, api.Unknown},
	catalogue.NotHeardByPeer: {Between, api.Error, api.OK},
	catalogue.PacketsLost:    {at: Between},
	catalogue.RateLimited:    {at: Between},
	// What is sent does not leave this side, or ends on the way.
	catalogue.NoRoute:        {Here, api.Unknown, api.Unknown},
	catalogue.LinkDown:       {Here, api.Unknown, api.Unknown},
	catalogue.SendProhibited: {Here, api.Unknown, api.Unknown},
	catalogue.KeyElsewhere:   {Here, api.Unknown, api.Unknown},
	catalogue.ResolverSilent: {Here, api.Unknown, api.Unknown},
	catalogue.NextHopSilent:  {Here, api.Unknown, api.Unknown},
	catalogue.NothingAnswers: {NAT, api.Error, api.Error},
	catalogue.RouterRefuses:  {Router, api.OK, api.OK}, // It has answered.
	// Where the peer is sought is wrong, or shut.
	catalogue.NameUnknown:       {Far, api.Unknown, api.Unknown},
	catalogue.NameMoved:         {Far, api.Unknown, api.Unknown},
	catalogue.PrivateAdvertised: {Far, api.Unknown, api.Unknown},
	catalogue.NoWayIn:           {Far, api.Unknown, api.Unknown},
	// Something of the peer's came through.
	catalogue.NothingListens:      {There, api.OK, api.Unknown},
	catalogue.WrongPeerKey:        {There, api.Unknown, api.OK},
	catalogue.AwaitingApproval:    {There, api.OK, api.OK},
	catalogue.PingLost:            {There, api.OK, api.OK},
	catalogue.PresharedKeyDiffers: {There, api.OK, api.OK},
	catalogue.StampInPast:         {There, api.OK, api.OK},
	catalogue.DuplicateKey:        {There, api.OK, api.OK},
	catalogue.RelayInUse:          {Relay, api.OK, api.OK},
	catalogue.RelayLost:           {Relay, api.Unknown, api.Unknown},
	catalogue.TurnUnreachable:     {Relay, api.Unknown, api.Unknown},
	catalogue.ProxyRefuses:        {Here, api.Unknown, api.Unknown},
}

// stages are the seats of what else checks of the tunnel find. Of any other stage nobody can tell
// what it passed.
var stages = map[string]seat{
	"resolve": {Far, api.Unknown, api.Unknown},
	"mtu":     {at: Between},
	oneWay:    {at: Between},
}

// partial reports whether of what is sent there only some does not arrive.
func (s seat) partial() bool { return s.at == Between && s.forth == "" }

// silent reports whether nothing is known but that no answer comes.
func (s seat) silent() bool { return s == seat{Between, api.Unknown, api.Unknown} }

// Silent reports whether nothing is known about a peer but that it does not answer, by the verdict on its
// gateway.
func Silent(v *api.Verdict) bool {
	return v.Verdict == api.Error && seatOf(&api.Check{Target: api.ServiceGateway, Verdict: *v}).silent()
}

// oneWay is the stage of what connections show of the direction in which they send.
const oneWay = "traffic"

// outward are this gateway's own checks, by how their names begin, that look at what is in front
// of it.
var outward = []string{"exposure", "portmap", "service", "node-addresses"}

// seatOf is where what a check found is.
func seatOf(c *api.Check) seat {
	if service(c) != "" {
		return seat{at: Service}
	}
	if s, ok := seats[catalogue.Code(c.Code)]; ok {
		if _, err := netip.ParseAddr(c.By); s.at == Router && err != nil {
			return seat{Between, api.Error, api.Unknown}
		}
		if c.Direction == api.DirectionOwn && s.at == Far {
			s.at = NAT // The same of this side.
		}
		return s
	}
	if c.Direction == api.DirectionOwn {
		for _, name := range outward {
			if strings.HasPrefix(c.Name, name) {
				return seat{NAT, api.Unknown, api.Unknown}
			}
		}
		return seat{Here, api.Unknown, api.Unknown}
	}
	if s, ok := stages[c.Stage]; ok {
		return s
	}
	return seat{Between, api.Unknown, api.Unknown}
}

// upstream begins the names of the checks of the servers behind services of this gateway.
const upstream = "upstream-"

// service is the name of the service that a check is about; empty of what is about the tunnel.
func service(c *api.Check) string {
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
