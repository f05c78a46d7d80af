package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/special"
)

// Names of the checks of what this gateway shows to the outside.
const (
	NameExposure = "exposure"
	NameSTUN     = "exposure-stun"
	NameSTUNSees = "exposure-stun-address"
	NameTURN     = "exposure-turn"
	NameClock    = "clock"
)

// standing is the state of the peers while this gateway is judged: what only strangers would miss
// is no fault as long as every peer is reached.
type standing struct {
	// working and failing are the numbers of peers, answering that of those which answer probes alone.
	working, failing, answering int
	// heard is roughly when the last of the failing peers was heard; zero for never.
	heard time.Time
	// delay is the longest that this process waited during their checks, if findings rest on it.
	delay delay
	// unnamed are peers' host names for which no name server answers.
	unnamed []string
	// unreached are the failing peers.
	unreached []string
	// waiting are the peers that can only be reached if they dial us, and have not.
	waiting []string
}

// Exposure judges the addresses that this gateway announces.
//
//	announced                                         peers                 verdict
//	loopback, link-local                              any                   PST0403
//	private, carrier-grade NAT or unique local,
//	  of no interface here                            none works, or one fails  PST0403
//	  of an interface here                            one fails             PST0403
//	  beside one that a stranger may dial             any                   none
//	nothing that a stranger may dial                  one waits to be dialled from  PST0401
//
// A private address is right for a peer in the same network, and a gateway that nobody can dial is
// fine if it dials its peers.
func Exposure(o Own, s standing) verdict.Finding {
	r := beginOwn(NameExposure)
	var p catalogue.Params
	p.Inbound, p.Port, p.Own, p.Set, p.NAT = true, o.Port, o.SeenAs(), o.Set(), o.NAT
	for _, c := range o.Candidates {
		if o.misleads(c, s) {
			p.Candidates = append(p.Candidates, c)
		}
	}
	if len(p.Candidates) > 0 {
		r.stage(StageProbe, api.Warning, o.compared())
		return r.found(api.Warning, StageProbe, catalogue.PrivateAdvertised, p)
	}
	if len(s.waiting) > 0 && o.wayIn() == wayShut {
		p.Names = s.waiting
		r.stage(StageProbe, api.Error, o.compared())
		return r.found(api.Error, StageProbe, catalogue.NoWayIn, p)
	}
	r.passed(StageProbe, o.compared())
	return r.ok(0)
}

// misleads reports whether a candidate sends peers to the wrong place.
func (o Own) misleads(c catalogue.Candidate, s standing) bool {
	if !announced(c) {
		return false
	}
	switch kind := special.Scope(c.Address); {
	case kind == "":
		return false
	case nowhere(kind):
		return true
	case o.announcesPublic(): // peers try all
		return false
	case in(o.Networks, c.Address):
		return s.failing > 0
	}
	return s.working == 0 || s.failing > 0
}

// announced reports whether a candidate is from the configuration or the Service.
func announced(c catalogue.Candidate) bool {
	return c.Source == api.SourceAdvertised || c.Source == api.SourceService
}

// announcesPublic reports whether any announced address can be dialled by a stranger.
func (o Own) announcesPublic() bool {
	return slices.ContainsFunc(o.Candidates, func(c catalogue.Candidate) bool { return announced(c) && special.Scope(c.Address) == "" })
}

// compared shows what is announced next to what others see.
func (o Own) compared() string {
	var parts []string
	if len(o.Advertised) > 0 {
		parts = append(parts, "configured "+catalogue.List(o.Advertised))
	}
	for _, source := range []string{api.SourceAdvertised, api.SourceService, api.SourcePortmap, api.SourceSTUN, api.SourcePeer, api.SourceRelay} {
		var found []string
		for _, c := range o.Candidates {
			if c.Source == source && !slices.Contains(found, c.Address) {
				found = append(found, c.Address)
			}
		}
		if len(found) > 0 {
			parts = append(parts, source+" "+catalogue.List(found))
		}
	}
	return strings.Join(parts, "; ")
}

// STUNServers checks the configured STUN servers: whether they answer, and what.
func STUNServers(o Own) []verdict.Finding {
	return append(servers(NameSTUN, catalogue.StunUnreachable, o, o.STUN), outvoted(o)...)
}

// outvoted returns the servers that see this gateway at another address than most do.
func outvoted(o Own) (out []verdict.Finding) {
	var p catalogue.Params
	p.Inbound = true
	for _, s := range o.STUN {
		if s.Err == "" && s.Agreed.IsValid() && s.Mapped != s.Agreed {
			p.Server, p.Address, p.Mapped, p.Own = cmp.Or(p.Server, s.Name), cmp.Or(p.Address, s.Address), s.Mapped.String(), []string{s.Agreed.String()}
			p.Names = append(p.Names, s.Name)
		}
	}
	if p.Server == "" {
		return nil
	}
	r := beginOwn(NameSTUNSees)
	r.Sure = api.Likely
	return []verdict.Finding{r.fail(api.Warning, StageProbe, catalogue.StunOutvoted, p)}
}

// TURNServers checks the configured relays.
func TURNServers(o Own) []verdict.Finding {
	return servers(NameTURN, catalogue.TurnUnreachable, o, o.TURN)
}

// servers checks servers of one kind. One is unreachable if none of its addresses answers, twice in
// a row if one did before: with three in ten packets lost, all requests of one time are lost in 7 %
// of cases. Without servers there is no check.
func servers(name string, code catalogue.Code, o Own, all []Server) []verdict.Finding {
	var well []string
	for _, s := range all {
		if (s.Err == "" || s.Failures == 1 && !s.At.IsZero()) && !slices.Contains(well, s.Name) {
			well = append(well, s.Name)
		}
	}
	var p catalogue.Params
	var heard time.Time
	p.Inbound, p.Port = true, o.Port
	for _, s := range all {
		if slices.Contains(well, s.Name) {
			continue
		}
		p.Candidates = append(p.Candidates, catalogue.Candidate{Address: cmp.Or(s.Address, s.Name), Reason: s.Err})
		if s.At.After(heard) {
			heard = s.At
		}
		if p.Server == "" {
			p.Server, p.Address, p.Detail, p.Failure = s.Name, s.Address, s.Err, s.failure(o)
		}
		if !slices.Contains(p.Names, s.Name) {
			p.Names = append(p.Names, s.Name)
		}
	}
	r := beginOwn(name)
	r.Rests, r.Since = []string{verdict.Own(NameNetwork), verdict.Own(NameSending)}, heard
	if name == NameTURN {
		r.Rests = append(r.Rests, verdict.Own(NameProxy))
	}
	if !slices.ContainsFunc(all, func(s Server) bool { return s.Err != "" && !s.Nameless }) {
		r.Rests = append(r.Rests, verdict.Own(NameResolver))
	}
	switch {
	case len(all) == 0:
		return nil
	case p.Server == "":
		r.passed(StageProbe, catalogue.List(well))
		return []verdict.Finding{r.ok(0)}
	}
	return []verdict.Finding{r.fail(api.Warning, StageProbe, code, p)}
}

// failure is why a server cannot be used. If an ICMP error says that requests do not arrive, that
// is not silence. If a rule here or on the way prohibits them, the fix is the same as for silence:
// let them out.
func (s Server) failure(o Own) catalogue.Failure {
	r, refused := o.refusal(s.Address, time.Now())
	if !refused || s.Failure != catalogue.FailureTimeout {
		return s.Failure
	}
	to, _ := netip.ParseAddrPort(r.To)
	switch at := r.hop(); {
	case at == hopBeyond && (r.By == "" || r.By == to.Addr().String()):
		return catalogue.FailureRefused
	case at == hopBeyond, at == hopProhibits, r.Reason == prohibited: // a router's rule may refuse ports
		return s.Failure
	}
	return catalogue.FailureRoute
}

// skew is how far another clock is ahead of ours.
type skew struct {
	of string
	by time.Duration
}

// Clock judges this host's clock by all clocks that are known. If only two differ, it is unknown
// which is wrong. If several agree with each other, ours is wrong, unless another agrees with ours.
func Clock(shown []skew) verdict.Finding {
	r := beginOwn(NameClock)
	var worst skew
	var apart []string
	var p catalogue.Params
	agree := true
	for _, s := range shown {
		if s.by.Abs() <= catalogue.SkewLimit {
			p.Server = cmp.Or(p.Server, s.of)
			continue
		}
		apart = append(apart, s.of)
		agree = agree && (worst.by == 0 || (s.by-worst.by).Abs() <= catalogue.SkewLimit)
		if s.by.Abs() > worst.by.Abs() {
			worst = s
		}
	}
	if len(apart) == 0 {
		return r.ok(0)
	}
	p.PeerName, p.Skew = worst.of, worst.by
	if agree && p.Server == "" && len(apart) > 1 {
		p.Names = apart
	}
	r.stage(StageHandshake, api.Warning, fmt.Sprintf("%s: %s", worst.of, catalogue.Seconds(worst.by)))
	return r.found(api.Warning, StageHandshake, catalogue.ClockSkew, p)
}
