package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/special"
)

const (
	// movedBefore is how long before the failure a name's change may explain it: names
	// are resolved each minute, and a path in use outlives its name.
	movedBefore = 10 * time.Minute
	// bootsApart is how long after the last change of a peer's boot two gateways count as
	// taking turns. Each of them probes an idle path every 20 s, so that after four times
	// that one of the two has ended.
	bootsApart = 80 * time.Second
)

// fault is a row of the decision table: when every ping failed, the first row that fits is
// the root.
type fault struct {
	code  catalogue.Code
	stage string
	fits  func(evidence) (catalogue.Params, bool)
}

// faults is the decision table, from the most specific evidence to the absence of any.
//
//	found                                                          code     stage
//	an endpoint's name does not resolve                            PST0107  resolve
//	a name leads elsewhere than before, and nothing answers there  PST0108  resolve
//	another key dials from there, or is dialled there, and neither
//	  the peer is heard nor has there ever been a handshake         PST0110  handshake
//	its handshake responses do not verify                          PST0109  handshake
//	its handshakes come from there with stamps of the past         PST0111  handshake
//	two gateways take turns with its key                           PST0113  handshake
//	ICMP: nothing listens at what it announced                     PST0402  probe
//	it is heard and does not hear us                               PST0106  probe
//	only its relay could be dialled                                PST0412  probe
//	all that it announces is private, of no network of ours        PST0403  probe
//	no way in here, and none at the peer or none that ever answered PST0401 probe
//	no address of it is known, and it has not dialled              PST0104  probe
//	nothing at all, ever, or only initiations                      PST0101  probe, or handshake if something passes
//	nothing any more, or only initiations                          PST0102  probe, or handshake if something passes
//	a young session, and no echo                                   PST0103  ping
//
// What names a setting comes before what a wrong setting may bring about: a peer that was
// given a wrong name, address or key is silent as well. What anybody can forge (other keys,
// ICMP) is worded as what something there sends, never as what the peer is.
func faults() []fault {
	return []fault{
		{catalogue.NameUnknown, StageResolve, evidence.unresolved},
		{catalogue.NameMoved, StageResolve, evidence.moved},
		{catalogue.WrongPeerKey, StageHandshake, evidence.otherKey},
		{catalogue.PresharedKeyDiffers, StageHandshake, evidence.unverified},
		{catalogue.StampInPast, StageHandshake, evidence.stamp},
		{catalogue.DuplicateKey, StageHandshake, evidence.duplicate},
		{catalogue.NothingListens, StageProbe, evidence.refused},
		{catalogue.NotHeardByPeer, StageProbe, evidence.heard},
		{catalogue.RelayLost, StageProbe, evidence.relayLost},
		{catalogue.PrivateAdvertised, StageProbe, evidence.private},
		{catalogue.NoWayIn, StageProbe, evidence.shut},
		{catalogue.PeerMustDial, StageProbe, evidence.noEndpoint},
		{catalogue.PeerSilent, StageProbe, evidence.silent},
		{catalogue.HandshakeStale, StageProbe, evidence.stale},
	}
}

func (e evidence) unresolved() (catalogue.Params, bool) {
	if e.probed || !e.lost || len(e.Unresolved) == 0 {
		return catalogue.Params{}, false
	}
	p := e.params()
	var names []string
	for _, n := range e.Unresolved {
		names = append(names, n.Name)
		p.Detail = cmp.Or(p.Detail, n.Err)
	}
	p.Names = names
	p.Candidates = slices.DeleteFunc(p.Candidates, func(c catalogue.Candidate) bool { return slices.Contains(names, c.Address) })
	return p, true
}

func (e evidence) moved() (catalogue.Params, bool) {
	if e.probed || !e.lost {
		return catalogue.Params{}, false
	}
	for _, n := range e.Moved {
		if n.At.Before(e.since.Add(-movedBefore)) && !n.At.IsZero() {
			continue
		}
		p := e.params()
		p.Names, p.Was, p.Now, p.Seen = []string{n.Name}, n.Was, n.Now, n.At
		return p, true
	}
	return catalogue.Params{}, false
}

// otherKey has two cases: somebody else's key at the peer's address, or our key unknown
// there. Either can be sent by anybody who pretends to have that address: it takes no key
// of the peer's, and at most our public one. So it counts only while nothing refutes it: a
// probe or an initiation of the peer shows that each has the other's key, and so does a
// handshake that was once completed.
func (e evidence) otherKey() (catalogue.Params, bool) {
	if e.probed || e.dialled() || !e.LastHandshake.IsZero() {
		return catalogue.Params{}, false
	}
	for _, k := range []KeySight{e.OtherKey, {Sight: e.NotForUs}} {
		if !e.counts(k.At) || !e.isPeer(k.From) {
			continue
		}
		p := e.params()
		p.From, p.Seen, p.Key = k.From, k.At, k.Key
		return p, true
	}
	return catalogue.Params{}, false
}

// unverified: probes are keyed with the preshared key as well, so one that is answered
// refutes it.
func (e evidence) unverified() (catalogue.Params, bool) {
	if e.probed || !e.unanswered(e.Unverified.At) {
		return catalogue.Params{}, false
	}
	p := e.params()
	p.From, p.Seen = e.Unverified.From, e.Unverified.At
	return p, true
}

// stamp: anybody can send an old initiation of the peer again, so that it counts only from
// where the peer is known to be.
func (e evidence) stamp() (catalogue.Params, bool) {
	if !e.counts(e.StampInPast.At) || !e.isPeer(e.StampInPast.From) {
		return catalogue.Params{}, false
	}
	p := e.params()
	s := e.StampInPast
	p.From, p.Seen, p.Stamp, p.Newest = s.From, s.At, s.Stamp, s.Newest
	return p, true
}

func (e evidence) duplicate() (catalogue.Params, bool) {
	if !e.takesTurns(e.now) {
		return catalogue.Params{}, false
	}
	p := e.params()
	p.From, p.Seen = e.HeardUnanswered.From, e.BootsAt[len(e.BootsAt)-1]
	p.From = cmp.Or(p.From, e.Path.Remote)
	return p, true
}

// takesTurns reports whether two gateways use the peer's key: boot ids grow with every
// start, so one that comes back is another process. One of them may have been stopped
// since: then the last change is not recent.
func (f Facts) takesTurns(now time.Time) bool {
	n := len(f.Boots)
	if n < 3 || len(f.BootsAt) != n || now.Sub(f.BootsAt[n-1]) > bootsApart {
		return false
	}
	return slices.Contains(f.Boots[:n-2], f.Boots[n-1])
}

// refused: only what the peer announced for others to dial counts. A peer that is heard
// from the very port listens there, so that a firewall says so in its place.
func (e evidence) refused() (catalogue.Params, bool) {
	if e.probed {
		return catalogue.Params{}, false
	}
	for _, r := range e.Unreachable {
		heard := e.unanswered(e.HeardUnanswered.At)
		if r.Reason != portUnreachable || !e.refuses(r) || !e.announced(r.To) || heard && e.HeardUnanswered.From == r.To {
			continue
		}
		p := e.params()
		p.Address, p.Seen, p.Detail = r.To, r.At, r.Reason
		if heard {
			p.From = e.HeardUnanswered.From
		}
		return p, true
	}
	return catalogue.Params{}, false
}

// portUnreachable is the reason of a Refusal that the host itself gave.
const portUnreachable = "port unreachable"

// announced reports whether an address is one that the peer, or the operator for it,
// names for others to dial. That nobody listens at the mapping of a NAT says no more than
// that the NAT keeps strangers out, and a private address may be somebody else's here.
func (e evidence) announced(address string) bool {
	for _, c := range e.Candidates {
		if c.Address != address {
			continue
		}
		switch c.Source {
		case api.SourceSTUN, api.SourcePeer, api.SourceRelay:
			return false
		case api.SourceHost:
			return special.Scope(address) == ""
		}
		return c.Relay == ""
	}
	return len(e.Candidates) == 0 && slices.Contains(e.Endpoints, address)
}

func (e evidence) heard() (catalogue.Params, bool) {
	if e.probed || !e.unanswered(e.HeardUnanswered.At) {
		return catalogue.Params{}, false
	}
	p := e.params()
	p.From, p.Seen = e.HeardUnanswered.From, e.HeardUnanswered.At
	return p, true
}

// relayLost: relays are among the candidates, and without them there is no way.
func (e evidence) relayLost() (catalogue.Params, bool) {
	relayed := slices.ContainsFunc(e.Candidates, catalogue.Candidate.Relayed)
	others := slices.DeleteFunc(slices.Clone(e.Candidates), catalogue.Candidate.Relayed)
	if !e.lost || e.dialled() || e.LastHandshake.IsZero() || !relayed || best(others, e.Path.PeerNAT, e.networks()) != wayShut ||
		e.own.without(catalogue.Candidate.Relayed).wayIn() == wayOpen {
		return catalogue.Params{}, false
	}
	p := e.params()
	for _, c := range e.Candidates {
		if c.Relayed() {
			p.Relay = cmp.Or(c.Relay, c.Address)
			break
		}
	}
	return p, true
}

// without is what is known of this gateway but for some candidates.
func (o *Own) without(left func(catalogue.Candidate) bool) *Own {
	if o == nil {
		return nil
	}
	w := *o
	w.Candidates = slices.DeleteFunc(slices.Clone(o.Candidates), left)
	return &w
}

// private: while a private address has ever worked, a network in between routes it.
func (e evidence) private() (catalogue.Params, bool) {
	announced := slices.DeleteFunc(slices.Clone(e.Candidates), func(c catalogue.Candidate) bool {
		return special.Scope(c.Address) == "" || c.Source != api.SourceAdvertised && c.Source != api.SourceService
	})
	if !e.lost || e.dialled() || !e.LastHandshake.IsZero() || len(announced) == 0 || best(e.Candidates, e.Path.PeerNAT, e.networks()) != wayShut {
		return catalogue.Params{}, false
	}
	p := e.params()
	p.Candidates = announced
	return p, true
}

// shut: this gateway is known to have no way in, and either the peer is as well, or its
// addresses have never answered while our NAT maps by destination, so that the two cannot
// meet halfway either. In the second case the verdict says what it does not know.
func (e evidence) shut() (catalogue.Params, bool) {
	if !e.lost || e.dialled() || len(e.Candidates) == 0 || e.own.wayIn() != wayShut {
		return catalogue.Params{}, false
	}
	p := e.params()
	p.PeerShut = best(e.Candidates, e.Path.PeerNAT, e.networks()) == wayShut
	return p, p.PeerShut || e.LastHandshake.IsZero() && e.own.symmetric()
}

func (e evidence) noEndpoint() (catalogue.Params, bool) {
	return e.params(), e.LastHandshake.IsZero() && !e.probed && !e.dialled() && len(e.Endpoints)+len(e.Candidates) == 0
}

func (e evidence) silent() (catalogue.Params, bool) {
	return e.quiet(), e.LastHandshake.IsZero()
}

func (e evidence) stale() (catalogue.Params, bool) {
	return e.quiet(), e.lost || !e.youngSession()
}

// quiet are the parameters of silence: with a time of the last answered probe where the
// way is open and only handshakes fail, and with a place alone where initiations of the
// peer come from.
func (e evidence) quiet() catalogue.Params {
	p := e.params()
	switch {
	case e.probed:
		p.From, p.Seen = e.Path.Remote, e.Probed
	case e.counts(e.Initiated.At):
		p.From = e.Initiated.From
	}
	return p
}

// rests are the checks of this gateway that explain a fault of the way: a peer that must dial
// us and cannot is not at fault.
//
//	fault                          own check              if
//	PST0104 the peer must dial     exposure               nobody can dial this gateway
//	PST0101 never answered         exposure               and nobody can dial the peer either
//	PST0401 neither can be dialled exposure               it says what else is wrong with the addresses
//	PST0412 the relay is gone      exposure-turn          always
func (e evidence) rests(c catalogue.Code, p catalogue.Params) []string {
	closed := e.own.wayIn() != wayOpen
	switch {
	case c == catalogue.RelayLost:
		return []string{verdict.Own(NameTURN)}
	case c == catalogue.NoWayIn, c == catalogue.PeerMustDial && closed,
		c == catalogue.PeerSilent && closed && p.From == "" && best(e.Candidates, e.Path.PeerNAT, e.networks()) == wayShut:
		return []string{verdict.Own(NameExposure)}
	}
	return nil
}
