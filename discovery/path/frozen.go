package path

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// dialPatience is how long a side that can be dialled waits for the peer to do so before it
	// dials the peer's NAT unsolicited.
	dialPatience = 5 * time.Second
	// relayPatience is how long pairs wait to be coordinated over a known relay that carries
	// nothing: an allocation takes at most 5 s on any transport, and 3 s more are enough for a
	// probe, its repetitions and a handshake. If both sides have lost their relayed addresses at
	// once, only blind tries are left.
	relayPatience = 8 * time.Second
	// heardFor is how long a packet from the peer shows that our NAT is open for it: the shortest
	// common lifetime of a mapping (Linux, unreplied).
	heardFor = 30 * time.Second
	// Without a relay, server-reflexive pairs are tried blindly, and rest for blindRest after every
	// blindTries. That is longer than a poisoned NAT remembers, and short enough for the two sides'
	// bursts to meet within a mapping's lifetime.
	blindTries = 3
	blindRest  = 40 * time.Second
)

// thaw freezes the pairs that must not be tried and frees those that may.
func (m *Machine) thaw() {
	for _, p := range m.pairs {
		why := m.frozenBecause(p)
		switch {
		case p.state == Frozen && why == "":
			m.startRound(p, "may be tried")
		case p.state == Frozen:
			p.reason = why
		case why != "" && (p.state == Probing || p.state == Failed):
			m.move(p, Frozen, why)
		}
	}
}

// frozenBecause says why a pair must not be tried, "" if it may be. Only a packet to a peer's
// server-reflexive address can do harm: if it is unsolicited it can poison the peer's NAT. One from
// a relay can, too: the peer then answers the relay from another port, and Linux keeps that port
// for whatever the peer sends elsewhere.
func (m *Machine) frozenBecause(p *pair) string {
	if p.source != SourceSTUN || p.works() || p.state == Suspect {
		return ""
	}
	if p.path.Via != "" {
		if m.talk.nat.Filtering == endpointIndependent || m.now.Sub(later(p.heard, p.shaken)) < heardFor {
			return ""
		}
		return "the peer has to come to our relayed address first: it is behind a NAT"
	}
	if m.now.Sub(later(p.heard, p.shaken)) < heardFor || m.punch.covers(p) {
		return ""
	}
	if rests := m.punch.quietUntil; !m.at(rests) {
		return "punching failed: silence until both NATs have forgotten it"
	}
	if s := m.sel; s != nil && s.state == Selected && s.class <= p.class {
		return "not needed: the selected path is " + s.class.String()
	}
	if m.talk.nat.Filtering == endpointIndependent {
		return ""
	}
	if why := m.leftToPeer(p); why != "" {
		return why
	}
	if m.hasRelay() && !m.aloneFor(relayPatience) {
		if ok, why := canPunch(m.local.NAT, m.talk.nat); !ok {
			return why
		}
		return "both sides are behind NATs: waits until coordinated over the relay"
	}
	blind := p.failures > 0 && p.failures%blindTries == 0 && (p.state == Failed || p.state == Frozen)
	if blind && !m.at(p.tried.Add(blindRest)) {
		return "tried without coordination, since there is no relay; silence until both NATs have forgotten it"
	}
	return ""
}

// leftToPeer says why the peer is the one to dial, "" if it is not.
func (m *Machine) leftToPeer(p *pair) string {
	// The peer may still be where it was heard in the last run, waiting for us: it does not know
	// that we have restarted and that it has to dial.
	if m.aloneFor(dialPatience) || slices.Contains(m.remote.given, Candidate{Addr: p.path.Remote, Source: SourcePeer}) {
		return ""
	}
	switch {
	case m.dialable(p.path.Remote.Addr().Is4()):
		return "the peer dials: it is behind a NAT, and we can be reached without help"
	case m.local.NAT.Filtering == endpointIndependent && m.talk.heard:
		return "the peer dials: our NAT lets anyone in"
	}
	return ""
}

// aloneFor reports whether no path has been selected for that long.
func (m *Machine) aloneFor(d time.Duration) bool {
	return m.sel == nil && m.at(m.switched.Add(d))
}

// hasRelay reports whether either side has a relay.
func (m *Machine) hasRelay() bool {
	return len(m.local.Relays) > 0 ||
		slices.ContainsFunc(m.pairs, func(p *pair) bool { return p.source == SourceRelay })
}

// dialable reports whether our own side can be reached in that family without its help.
func (m *Machine) dialable(ipv4 bool) bool {
	for _, c := range m.local.Candidates {
		if c.Addr.Addr().Is4() == ipv4 && stable(c.Source) {
			return true
		}
	}
	if mapped(m.local.NAT.Mapping) {
		return false
	}
	return slices.ContainsFunc(m.local.Hosts, func(a netip.Addr) bool {
		a = a.Unmap()
		return a.Is4() == ipv4 && a.IsGlobalUnicast() && !a.IsPrivate()
	})
}
