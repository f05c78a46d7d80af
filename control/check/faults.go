package check

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/special"
)

const (
	// movedBefore is how long before the failure a name's change may explain it: names are resolved
	// every minute, and a path in use outlives its name.
	movedBefore = 10 * time.Minute
	// bootsApart is how long after the last change of a peer's boot number two gateways count as
	// taking turns. Each probes an idle path every 20 s, so after four times that one of them has
	// ended.
	bootsApart = 80 * time.Second
	// attemptsFail is how many handshakes have to go unanswered while probes are answered, and
	// handshakeDue the least age of the last one, to show that it is not just one that was lost:
	// WireGuard begins one 15 s after data went unanswered, and then every 5 s.
	attemptsFail = 2
	handshakeDue = 40 * time.Second
	// givenUp is how long a silence lasts until the path finder gives a path up.
	givenUp = catalogue.Settled
)

// fault is a row of the decision table: if every ping failed, the first row that fits is the root.
type fault struct {
	code  catalogue.Code
	stage string
	// sure is the confidence in the root; empty for what shows only with time.
	sure api.Confidence
	// fits may add parameters to a path fault.
	fits func(evidence, *catalogue.Params) bool
}

// faults is the decision table, from the most specific evidence to the absence of any.
//
//	found                                                          code     stage
//	it says that we are none of its peers                          PST0116  probe
//	no name server answers for an endpoint's name                  PST0127  resolve
//	an endpoint's name does not resolve                            PST0107  resolve
//	a name leads elsewhere than before, and nothing answers there  PST0108  resolve
//	this machine fails to send, has no route to it, prohibits it,
//	  or finds no next hop                PST0128, PST0120, PST0122, PST0124  probe
//	it has yet to approve us                                       PST0105  handshake
//	another key dials from there, or is dialled there, and the peer
//	  is not heard                                                  PST0110  handshake
//	where it is dialled is this gateway, or another peer           PST0131  probe
//	its handshake responses do not verify                          PST0109  handshake
//	its handshakes come from there with stamps of the past         PST0111  handshake
//	two gateways take turns with its key                           PST0113  handshake
//	it starts again and again                                      PST0132  probe
//	a router says that it is not reached                           PST0123  probe
//	ICMP: nothing listens at what it announced                     PST0402  probe
//	it is heard and does not hear us                               PST0106  probe
//	only its relay could be dialled                                PST0412  probe
//	all that it announces is private, of no network of ours        PST0403  probe
//	no way in here, and none at the peer or none that ever answered PST0401 probe
//	no address of it is known, and it has not dialled              PST0104  probe
//	the path has been interrupted at regular intervals             PST0133  probe
//	nothing at all, ever, or only initiations                      PST0101  probe, or handshake if something passes
//	nothing any more, or only initiations, or probes are answered
//	  and handshakes are not                                       PST0102  probe, or handshake if something passes
//	a young session, no echo, and answers to probes take as long   PST0118  ping
//	a young session, no echo, and an answer to something else since PST0103  ping
//	a young session, and no echo                                   PST0126  ping
//
// A packet must first leave this host, so its own errors come before everything outside; if only
// some of the peer's addresses are refused, the others may be to blame. A row that names a setting
// comes before the symptoms of a wrong setting: a peer with a wrong name, address or key is silent
// as well. Evidence that anyone can forge (other keys, ICMP) is worded as what something there
// sends, never as what the peer is.
func faults() []fault {
	return []fault{
		{catalogue.RemovedByPeer, StageProbe, api.Certain, evidence.removed},
		{catalogue.ResolverSilent, StageResolve, api.Certain, evidence.unnamed},
		{catalogue.NameUnknown, StageResolve, api.Certain, evidence.unresolved},
		{catalogue.NameMoved, StageResolve, "", evidence.moved},
		{catalogue.SendFails, StageProbe, api.Certain, ends(hopFails)},
		{catalogue.NoRoute, StageProbe, api.Certain, ends(hopRoute)},
		{catalogue.SendProhibited, StageProbe, api.Certain, ends(hopProhibits)},
		{catalogue.NextHopSilent, StageProbe, api.Certain, ends(hopNeighbour)},
		{catalogue.AwaitingApproval, StageHandshake, api.Likely, evidence.awaited},
		{catalogue.WrongPeerKey, StageHandshake, api.Likely, evidence.otherKey},
		{catalogue.EndpointOfAnother, StageProbe, api.Likely, evidence.elsewhere},
		{catalogue.PresharedKeyDiffers, StageHandshake, api.Likely, evidence.unverified},
		{catalogue.StampInPast, StageHandshake, api.Likely, evidence.stamp},
		{catalogue.DuplicateKey, StageHandshake, api.Certain, evidence.duplicate},
		{catalogue.PeerRestarts, StageProbe, api.Likely, evidence.restarting},
		{catalogue.RouterRefuses, StageProbe, api.Likely, ends(hopRouter)},
		{catalogue.NothingListens, StageProbe, api.Likely, evidence.refused},
		{catalogue.NotHeardByPeer, StageProbe, api.Certain, evidence.heard},
		{catalogue.RelayLost, StageProbe, "", evidence.relayLost},
		{catalogue.PrivateAdvertised, StageProbe, api.Likely, evidence.private},
		{catalogue.NoWayIn, StageProbe, api.Likely, evidence.shut},
		{catalogue.PeerMustDial, StageProbe, api.Certain, evidence.noEndpoint},
		{catalogue.PathInterrupted, StageProbe, api.Likely, evidence.interrupted},
		{catalogue.PeerSilent, StageProbe, "", evidence.silent},
		{catalogue.HandshakeStale, StageProbe, "", evidence.stale},
		{catalogue.PathSlow, StagePing, api.Likely, evidence.slow},
		{catalogue.PingLost, StagePing, api.Likely, evidence.echoLost},
		{catalogue.Unanswered, StagePing, api.Tentative, evidence.fresh},
	}
}

func (e evidence) removed(p *catalogue.Params) bool {
	return e.unanswered(e.Removed.At) && saw(p, e.Removed)
}

// awaited: a gateway neither answers nor dials one that it has yet to approve, so silence means
// nothing else while it waits; nor does an answer that does not verify, which one that was removed and
// joins again gets. That it is approved shows only when something comes from there.
func (e evidence) awaited(p *catalogue.Params) bool {
	p.Awaited = e.Awaited && e.LastHandshake.IsZero() && !e.probed && !e.dialled()
	return p.Awaited
}

// unnamed: while no name server answers, nothing is known about a name.
func (e evidence) unnamed(p *catalogue.Params) bool {
	return e.unresolved(p) && !slices.ContainsFunc(e.Unresolved, func(n NameFact) bool { return !n.Silent })
}

func (e evidence) unresolved(p *catalogue.Params) bool {
	if e.probed || !e.lost || len(e.Unresolved) == 0 {
		return false
	}
	for _, n := range e.Unresolved {
		p.Names = append(p.Names, n.Name)
		through := strings.Split(n.Err, ": ")
		p.Detail = cmp.Or(p.Detail, through[len(through)-1])
	}
	p.Candidates = slices.DeleteFunc(p.Candidates, func(c catalogue.Candidate) bool { return slices.Contains(p.Names, c.Address) })
	return true
}

// moved: the name of the peer led to the address in use, and does so no more.
func (e evidence) moved(p *catalogue.Params) bool {
	if e.probed || !e.gone {
		return false
	}
	for _, n := range e.Moved {
		if host, _, err := net.SplitHostPort(e.Path.Remote); err == nil && slices.Contains(n.Now, host) {
			continue
		}
		if n.At.IsZero() || !n.At.Before(e.since.Add(-movedBefore)) {
			p.Names, p.Was, p.Now, p.Seen = []string{n.Name}, n.Was, n.Now, n.At
			return true
		}
	}
	return false
}

// saw adds a sight to a fault's parameters.
func saw(p *catalogue.Params, s Sight) bool {
	p.From, p.Seen = s.From, s.At
	return true
}

// otherKey covers two cases: another key at the peer's address, or our key unknown there. Anyone
// who forges that address can send either: it takes no key of the peer's, and at most our public
// key. So it counts only while nothing refutes it: a probe or an initiation from the peer shows
// that each has the other's key. A peer that has worked may have been reinstalled; then it counts
// once its path is lost, and only from its exact address.
func (e evidence) otherKey(p *catalogue.Params) bool {
	if e.probed || e.dialled() || !e.gone {
		return false
	}
	for _, k := range []KeySight{e.OtherKey, {Sight: e.NotForUs}} {
		if e.counts(k.At) && e.isPeer(k.From) {
			p.Key, p.Configured, p.Worked = k.Key, e.Key, !e.LastHandshake.IsZero()
			p.Joined, p.Former = e.Joined, slices.Contains(e.Former, k.Key)
			return saw(p, k.Sight)
		}
	}
	return false
}

// elsewhere: every address at which the peer is dialled is this gateway's, as our own initiations come
// back, or another peer's. What goes over a relay is the peer's own.
func (e evidence) elsewhere(p *catalogue.Params) bool {
	sent := e.sentTo()
	if e.probed || e.dialled() || !e.gone || len(sent) == 0 || slices.ContainsFunc(e.Candidates, catalogue.Candidate.Relayed) {
		return false
	}
	for _, a := range sent {
		other, ours := "", e.counts(e.CameBack.At) && e.CameBack.From == a
		if e.answersAt != nil {
			other = e.answersAt(a)
		}
		if other == "" && !ours {
			return false
		}
		if p.Address == "" {
			p.Address, p.PeerName = a, other
		}
	}
	host, _ := special.Host(p.Address)
	for _, n := range e.Named {
		if slices.Contains(n.Now, host.String()) {
			p.Names = append(p.Names, n.Name)
		}
	}
	return true
}

// unverified: probes are keyed with the preshared key as well, so an answered one refutes it.
func (e evidence) unverified(p *catalogue.Params) bool {
	return !e.probed && e.unanswered(e.Unverified.At) && saw(p, e.Unverified)
}

// stamp: anyone can replay an old initiation of the peer, so it counts only from where the peer is
// known to be.
func (e evidence) stamp(p *catalogue.Params) bool {
	s := e.StampInPast
	p.Stamp, p.Newest = s.Stamp, s.Newest
	return e.counts(s.At) && e.isPeer(s.From) && saw(p, s.Sight)
}

func (e evidence) duplicate(p *catalogue.Params) bool {
	return e.takesTurns(e.now) && saw(p, Sight{From: cmp.Or(e.HeardUnanswered.From, e.Path.Remote), At: e.BootsAt[len(e.BootsAt)-1]})
}

// takesTurns reports whether two gateways use the peer's key. Boot numbers grow with every start,
// so one that comes back is another process. One of the two may have been stopped since: then the
// last change is not recent.
func (f Facts) takesTurns(now time.Time) bool {
	n := len(f.Boots)
	if n < 3 || len(f.BootsAt) != n || now.Sub(f.BootsAt[n-1]) > bootsApart {
		return false
	}
	return slices.Contains(f.Boots[:n-2], f.Boots[n-1])
}

// refused: only addresses that the peer announced count. A peer that is heard from the exact port
// listens there, so then a firewall is refusing.
func (e evidence) refused(p *catalogue.Params) bool {
	heard := e.unanswered(e.HeardUnanswered.At)
	for _, r := range e.Unreachable {
		if e.probed || r.Here || r.Reason != portUnreachable || !e.refuses(r) || !e.announced(r.To) || heard && e.HeardUnanswered.From == r.To {
			continue
		}
		p.Address, p.Seen, p.Detail = r.To, r.At, r.Reason
		if heard {
			p.From = e.HeardUnanswered.From
		}
		return true
	}
	return false
}

// Reasons of a Refusal, as in package underlay. The first is the host's itself.
const (
	portUnreachable    = "port unreachable"
	hostUnreachable    = "host unreachable"
	networkUnreachable = "network unreachable"
	noBuffers          = "no buffer space"
	prohibited         = "administratively prohibited"
)

// announced reports whether the peer, or the operator for it, names the address for others to dial.
// If nothing listens at a NAT's mapping, that only means that the NAT keeps strangers out, and a
// private address may be another host's here.
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

func (e evidence) heard(p *catalogue.Params) bool {
	return !e.probed && e.unanswered(e.HeardUnanswered.At) && saw(p, e.HeardUnanswered)
}

// relayLost: there are relays among the candidates, and no other way. Before the path is given up,
// the relay in use has to say itself that it no longer relays.
func (e evidence) relayLost(p *catalogue.Params) bool {
	i := slices.IndexFunc(e.Candidates, catalogue.Candidate.Relayed)
	if !e.lost && !e.relayRefuses() || e.dialled() || e.LastHandshake.IsZero() || i < 0 ||
		best(notRelayed(e.Candidates), e.Path.PeerNAT, e.networks()) != wayShut || e.own.direct().wayIn() == wayOpen {
		return false
	}
	p.Relay = cmp.Or(e.Candidates[i].Relay, e.Candidates[i].Address)
	p.RelayAnswers = e.NoPath != "" && e.own.relayAnswers(p.Relay, e.now)
	return true
}

// relayAnswers reports whether a relay, named as configured or by an address on it, answers this gateway
// as its TURN server, so that only what it relays is lost.
func (o *Own) relayAnswers(relay string, now time.Time) bool {
	host, known := special.Host(relay)
	return o != nil && slices.ContainsFunc(o.TURN, func(s Server) bool {
		at, ok := special.Host(s.Address)
		return (s.Name == relay || known && ok && at == host) && s.Err == "" && !unansweredFor(s.Unanswered, now)
	})
}

// relayRefuses reports whether the relay in use says that it no longer relays.
func (e evidence) relayRefuses() bool {
	return e.gone && slices.ContainsFunc(e.Candidates, func(c catalogue.Candidate) bool {
		r, refused := e.refusal(c.Address)
		return c.Relayed() && (c.State == "selected" || c.State == "suspect") && refused && r.Reason == portUnreachable
	})
}

// direct is what is known about this gateway, without relays.
func (o *Own) direct() *Own {
	if o == nil {
		return nil
	}
	w := *o
	w.Candidates = notRelayed(o.Candidates)
	return &w
}

// private: if a private address has ever worked, a network in between routes it.
func (e evidence) private(p *catalogue.Params) bool {
	p.Candidates = slices.DeleteFunc(slices.Clone(e.Candidates), func(c catalogue.Candidate) bool {
		return special.Scope(c.Address) == "" || c.Source != api.SourceAdvertised && c.Source != api.SourceService
	})
	return e.lost && !e.dialled() && e.LastHandshake.IsZero() && len(p.Candidates) > 0 && e.peerShut()
}

// peerShut reports whether nobody can dial the peer at what it announces.
func (e evidence) peerShut() bool { return best(e.Candidates, e.Path.PeerNAT, e.networks()) == wayShut }

// shut: this gateway is known to have no way in, and either the peer has none, too, or its
// addresses have never answered and our NAT maps by destination, so that the two cannot meet
// halfway. In the second case the verdict says what it does not know.
func (e evidence) shut(p *catalogue.Params) bool {
	p.PeerShut = e.peerShut()
	return e.lost && !e.dialled() && len(e.Candidates) > 0 && e.own.wayIn() == wayShut &&
		(p.PeerShut || e.LastHandshake.IsZero() && e.own.symmetric())
}

func (e evidence) noEndpoint(*catalogue.Params) bool {
	return e.LastHandshake.IsZero() && !e.probed && !e.dialled() && len(e.Endpoints)+len(e.Candidates) == 0
}

func (e evidence) silent(p *catalogue.Params) bool {
	if e.quiet(p); !e.probed && len(e.Named) > 0 { // it may lead to somebody else
		p.Names, p.Now = []string{e.Named[0].Name}, e.Named[0].Now
	}
	return e.LastHandshake.IsZero()
}

func (e evidence) stale(p *catalogue.Params) bool {
	if e.quiet(p); p.From == "" { // a session may be older than the silence
		p.Age = max(0, e.now.Sub(e.lastHeard()))
	}
	age, known := e.handshakeAge(e.now)
	return e.gone || !e.youngSession() ||
		e.probed && !e.tooSlow() && e.Attempts >= attemptsFail && known && age >= handshakeDue
}

// tooSlow reports whether an echo takes longer than it is waited for: a round trip, or two if it waits
// for a handshake. WireGuard gives a handshake up after 5 s.
func (e evidence) tooSlow() bool { return 2*e.Path.RTT >= Timeout }

// slow: probes are answered, after so long that echoes are not.
func (e evidence) slow(p *catalogue.Params) bool {
	*p = slowOver(e.Facts, e.Path.RTT)
	p.Timeout = Timeout
	return e.probed && e.tooSlow()
}

// echoLost: an answer to a probe or a handshake after the echoes were sent shows that the path is
// open. Earlier answers say nothing.
func (e evidence) echoLost(p *catalogue.Params) bool {
	p.Address, p.Timeout = e.Address.String(), Timeout
	p.Age, _ = e.handshakeAge(e.now)
	return e.Probed.After(e.began) || e.LastHandshake.After(e.began)
}

// fresh is all that is known in the first seconds of a silence: when it began. Later it shows
// whether the path is lost or comes back.
func (e evidence) fresh(p *catalogue.Params) bool {
	p.Address, p.Timeout, p.Seen = cmp.Or(e.Path.Remote, e.Address.String()), Timeout, e.lastHeard()
	p.Age = max(0, e.now.Sub(p.Seen))
	return true
}

// quiet describes a silence: with the time of the last answered probe if the path is open and only
// handshakes fail, and with just a place if initiations from the peer arrive.
func (e evidence) quiet(p *catalogue.Params) {
	switch {
	case e.probed:
		p.From, p.Seen = e.Path.Remote, e.Probed
	case e.counts(e.Initiated.At):
		p.From = e.Initiated.From
	default:
		e.here(p)
	}
}

// here adds what happened at this gateway and may explain a silence.
func (e evidence) here(p *catalogue.Params) {
	e.readdressed(p)
	// The kernel's filter is for IPv4 alone.
	if e.own != nil && e.own.Filtered >= dropsShown+e.own.filteredAnyway(e.lastHeard()) && !e.onlyIPv6() {
		p.Filtered, p.FilteredIn = e.own.Filtered, e.own.FilteredIn
	}
}

// readdressed adds a change of this gateway's addresses at about the time when the peer fell silent.
func (e evidence) readdressed(p *catalogue.Params) {
	if e.own == nil {
		return
	}
	if m := e.own.Moved; !m.At.IsZero() && m.At.Sub(e.lastHeard()).Abs() < silentWith {
		p.OwnWas, p.OwnNow, p.OwnSince = m.Was, m.Now, max(0, e.now.Sub(m.At))
	}
}

// filteredAnyway is how many packets the reverse path filter discards in the same time that are not a
// peer's that has been silent since then: twice as many as in the busiest minute before. With two
// interfaces in one network, it discards each broadcast that arrives at the second; then, without a
// time before, everything may be those.
func (o *Own) filteredAnyway(since time.Time) uint64 {
	var most float64 // a second
	known := false
	for _, r := range o.FilteredBefore {
		if took := r.To.Sub(r.From).Seconds(); took > 0 && !r.To.After(since) {
			known, most = true, max(most, float64(r.Count)/took)
		}
	}
	if !known && o.twiceInOneNetwork() {
		return o.Filtered
	}
	return uint64(2 * most * o.FilteredIn.Seconds())
}

// twiceInOneNetwork reports whether this host has two addresses in one IPv4 network.
func (o *Own) twiceInOneNetwork() bool {
	seen := map[netip.Prefix]bool{}
	return slices.ContainsFunc(o.Networks, func(n netip.Prefix) bool {
		was := seen[n.Masked()]
		seen[n.Masked()] = true
		return was && n.Addr().Is4() && !n.IsSingleIP()
	})
}

// onlyIPv6 reports whether the peer has only IPv6 addresses, as far as known.
func (e evidence) onlyIPv6() bool {
	return len(e.Candidates) > 0 && !slices.ContainsFunc(e.Candidates, func(c catalogue.Candidate) bool {
		host, ok := special.Host(c.Address)
		return !ok || host.Is4()
	})
}

// sure is a row's confidence: a silence is likely to be a fault once the path is given up, or has
// been silent for as long without ever having worked.
func (e evidence) sure(row fault) api.Confidence {
	switch {
	case row.sure != "":
		return row.sure
	case !e.LastHandshake.IsZero() && e.NoPath == "" && e.youngSession(), e.LastHandshake.IsZero() && e.age() < givenUp:
		return api.Tentative
	}
	return api.Likely
}

// rests are the gateway's own checks that explain a path fault, most basic first. Without a link,
// or anyone outside who answers, nothing is known about the peer; and a peer that must dial us and
// cannot is not at fault.
//
//	fault                          own check              if
//	any                            network                always
//	silence, a send that fails     sending                always
//	silence after it worked        key                    another gateway runs with our key
//	PST0127 no name server         resolver               always: it is the same
//	PST0104 the peer must dial     exposure               nobody can dial this gateway
//	PST0101 never answered         exposure               and nobody can dial the peer either
//	PST0401 neither can be dialled exposure               it says what else is wrong with the addresses
//	PST0412 the relay is gone      exposure-turn          always
func (e evidence) rests(c catalogue.Code, p catalogue.Params) []string {
	closed := e.own.wayIn() != wayOpen
	rests := []string{verdict.Own(NameNetwork)}
	switch c {
	case catalogue.PeerSilent, catalogue.HandshakeStale, catalogue.PathInterrupted, catalogue.NotHeardByPeer, catalogue.PingLost, catalogue.Unanswered,
		catalogue.SendFails, catalogue.NoRoute, catalogue.SendProhibited, catalogue.NextHopSilent:
		rests = append(rests, verdict.Own(NameSending))
	}
	switch {
	case c == catalogue.HandshakeStale, c == catalogue.PathInterrupted, c == catalogue.NotHeardByPeer, c == catalogue.Unanswered, c == catalogue.StampInPast:
		rests = append(rests, verdict.Own(NameKey))
	case c == catalogue.ResolverSilent:
		rests = append(rests, verdict.Own(NameResolver))
	case c == catalogue.RelayLost:
		rests = append(rests, verdict.Own(NameTURN))
	case c == catalogue.NoWayIn, c == catalogue.PeerMustDial && closed,
		c == catalogue.PeerSilent && closed && p.From == "" && e.peerShut():
		rests = append(rests, verdict.Own(NameExposure))
	}
	return rests
}
