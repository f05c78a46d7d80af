package report

import (
	"reflect"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

const (
	// mostMTU bounds the packet size that a report can bring into a fix: what is wider than
	// Ethernet is no narrow link. The least is the table's, which goes no lower than IPv6 may.
	mostMTU = 1500
	// elsewhere stands in a fix for an address of the reader's that is not known.
	elsewhere = "IP:PORT"
)

// Reader is the gateway that reads a report, as it knows itself.
type Reader struct {
	// Peer is what the writer is called here.
	Peer string
	// Offers are the services that the writer may reach here, nil if that is not known.
	Offers []string
	// User is the peer's user at this gateway's API server; empty when it has none.
	User string
	// Own is called when a fix is made of what is known of this gateway; nil knows nothing.
	Own func() check.Own
}

// explain gives a verdict its cause and fix. The cause is what the writer says, the fix is
// made of what is known here.
func (r Reader) explain(v *api.Verdict, c catalogue.Code, target string, p catalogue.Params) {
	var o check.Own
	if r.Own != nil {
		o = r.Own()
	}
	told := r.told(target, p, o)
	known := trusted(told, o)
	v.Code = string(c)
	v.Cause, _ = catalogue.Render(c, told)
	_, v.Fix = catalogue.Render(c, known)
	v.Command = catalogue.Command(c, known)
}

// told are the parameters as they are read here. What has two ends changes them: the
// writer's NAT is the peer's. Own and Port are never a writer's, and of the addresses at
// which it sought this gateway only those are named that are.
func (r Reader) told(target string, p catalogue.Params, o check.Own) catalogue.Params {
	p.Inbound, p.Peer, p.Service, p.User = true, r.Peer, target, r.User
	p.Own, p.Port, p.NAT, p.PeerNAT = o.SeenAs(), o.ListenPort, catalogue.NAT{Mapping: o.NAT.Mapping, Filtering: o.NAT.Filtering}, p.NAT
	p.MTU = min(p.MTU, mostMTU)
	p.Endpoints = slices.DeleteFunc(p.Endpoints, func(a string) bool { return !isOwn(o, a) })
	p.Candidates = slices.DeleteFunc(p.Candidates, func(c catalogue.Candidate) bool { return !isOwn(o, c.Address) })
	return p
}

// isOwn reports whether peers are told to dial an address.
func isOwn(o check.Own, address string) bool {
	return slices.ContainsFunc(o.Candidates, func(c catalogue.Candidate) bool { return c.Address == address }) ||
		slices.Contains(o.Advertised, address)
}

// trusted are the parameters that may go into a fix: those whose field says so. No address
// or name that the writer chose is among them.
func trusted(p catalogue.Params, o check.Own) catalogue.Params {
	seen := p.From != ""
	keepTagged(reflect.ValueOf(&p).Elem())
	if seen { // that something was seen matters; where this gateway is, it knows itself
		p.From = elsewhere
		if own := o.SeenAs(); len(own) > 0 {
			p.From = own[0]
		}
	}
	return p
}

// keepTagged clears the fields of parameters that have no tag report:"fix", in the structures
// that are embedded as well.
func keepTagged(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Anonymous:
			keepTagged(v.Field(i))
		case f.Tag.Get("report") != "fix":
			v.Field(i).SetZero()
		}
	}
}

// denied answers a report that the writer may not reach something here: what it may is
// decided here, and known. It is false where the code is about something else, or the
// services are granted and what fails is how they are used.
func (r Reader) denied(c catalogue.Code, target string) (api.Verdict, bool) {
	needs := []string{target}
	switch c {
	case catalogue.AuthOff, catalogue.APIServerOff, catalogue.AuthDenied, catalogue.APIServerUnauthorized, catalogue.APIServerForbidden:
	case catalogue.IdentityMissing:
		needs = append(needs, api.ServiceAuth)
	default:
		return api.Verdict{}, false
	}
	off := catalogue.APIServerOff
	if target == api.ServiceAuth {
		off = catalogue.AuthOff
	}
	v := api.Verdict{Verdict: api.Off, Code: string(off)}
	missing := slices.ContainsFunc(needs, func(service string) bool { return !slices.Contains(r.Offers, service) })
	switch {
	case r.Offers != nil && missing:
		v.Cause, v.Fix = catalogue.Render(off, catalogue.Params{Inbound: true, Peer: r.Peer, Service: target})
	case c == off:
		v.Cause, v.Fix = r.Peer+" reports that "+target+" here is not offered to it", askThere(r.Peer)
	default:
		return api.Verdict{}, false
	}
	return v, true
}
