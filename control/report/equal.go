package report

import (
	"slices"
	"time"
)

// equal reports whether two reports hold the same values but for the times that Same leaves
// out. What differs here may still be the same once it is written.
func (r Report) equal(o Report) bool {
	return r.Gateway == o.Gateway && r.NAT == o.NAT && r.Offers == o.Offers && r.Identity == o.Identity &&
		slices.EqualFunc(r.Verdicts, o.Verdicts, func(a, b Verdict) bool {
			return a.Target == b.Target && a.Outcome == b.Outcome && a.Code == b.Code && a.Stage == b.Stage && a.Params.equal(b.Params)
		})
}

// orNone are the values themselves, also where there are none.
func (p *Params) orNone() *Params {
	if p == nil {
		return &Params{}
	}
	return p
}

// equal is for what may be nil, which mostly both are.
func (p *Params) equal(o *Params) bool {
	if p == o {
		return true
	}
	p, o = p.orNone(), o.orNone()
	return p.Address == o.Address && p.BesideAddress == o.BesideAddress && p.Remote == o.Remote &&
		slices.Equal(p.Endpoints, o.Endpoints) && p.Token == o.Token && p.Failure == o.Failure && p.Beside == o.Beside &&
		p.ServerName == o.ServerName && slices.Equal(p.Names, o.Names) &&
		p.Issuer == o.Issuer && slices.Equal(p.Authorities, o.Authorities) && p.Status == o.Status &&
		p.Timeout == o.Timeout && p.Took == o.Took && p.Way == o.Way &&
		sameTime(p.NotBefore, o.NotBefore) && sameTime(p.NotAfter, o.NotAfter) &&
		p.Version == o.Version && p.OwnVersion == o.OwnVersion && p.Limit == o.Limit && p.Gateway.equal(&o.Gateway)
}

func (g *Gateway) equal(o *Gateway) bool {
	return g.From == o.From && g.Seen == o.Seen && slices.Equal(g.Candidates, o.Candidates) && g.PeerShut == o.PeerShut &&
		sameTime(g.Stamp, o.Stamp) && sameTime(g.Newest, o.Newest) &&
		slices.Equal(g.Was, o.Was) && slices.Equal(g.Now, o.Now) &&
		g.Sent == o.Sent && g.Lost == o.Lost && g.Jitter == o.Jitter &&
		g.MTU == o.MTU && g.LinkMTU == o.LinkMTU && g.Size == o.Size &&
		g.NAT == o.NAT && g.PeerNAT == o.PeerNAT && g.Relay == o.Relay
}

// sameTime compares what is written of a time as well: the zone.
func sameTime(a, b time.Time) bool { return a.Equal(b) && a.Location() == b.Location() }
