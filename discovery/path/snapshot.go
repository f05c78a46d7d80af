package path

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Snapshot returns what is known now.
func (m *Machine) Snapshot() Snapshot {
	s := m.Selection()
	s.Candidates, s.History, s.NextTry, s.Probing = m.statuses(), slices.Clone(m.history.notes), m.nextTry(), m.probing
	if m.sel != nil {
		return s
	}
	if s.RelayLost = m.relayLost(); s.RelayLost != nil {
		s.Reason = s.RelayLost.String()
	}
	if s.Reason == "" {
		s.Reason = m.whyNone(s.NextTry)
	}
	return s
}

// Selection returns the part of Snapshot about the path in use, and when the peer was heard. It
// does not allocate.
func (m *Machine) Selection() Snapshot {
	s := Snapshot{Kind: KindNone, Since: m.switched, Reason: m.why, Trips: m.trips, Interruptions: m.interruptions.regular}
	for _, p := range m.pairs {
		s.Proven = later(s.Proven, p.proven())
		s.Heard = later(s.Heard, later(p.proven(), p.heard))
	}
	p := m.sel
	if p == nil {
		return s
	}
	s.Selected, s.Source, s.RTT, s.MTU, s.Mapped = p.path, p.source, p.rtt, m.overlayMTU(p), p.mapped
	s.Kind = KindDirect
	if p.class == classRelayed {
		s.Kind = KindRelay
	}
	s.Answered = p.answered
	if p.asked > 0 && m.judged(p) {
		s.Unanswered = p.askedAt
	}
	return s
}

// whyNone says why no path was ever selected. next is when something is tried again.
func (m *Machine) whyNone(next time.Time) string {
	addresses := make(map[netip.AddrPort]bool)
	var probing, answered, failed bool
	waits := ""
	for _, p := range m.pairs {
		addresses[p.path.Remote] = true
		switch p.state {
		case Probing:
			probing = true
		case Valid, Selected, Suspect:
			answered = true
		case Failed:
			failed = true
		case Frozen:
			waits = cmp.Or(waits, p.reason)
		}
	}
	n := fmt.Sprintf("%d addresses", len(addresses))
	if len(addresses) == 1 {
		n = "1 address"
	}
	switch {
	case len(addresses) == 0:
		return "no candidate is known yet"
	case answered:
		return n + " known, and what answered is not fit for use yet"
	case probing:
		return "trying " + n + ", and no probe is answered yet"
	case failed && !next.IsZero():
		return "none of " + n + " answers; tried again at " + next.UTC().Format("15:04:05 UTC")
	case failed:
		return "none of " + n + " answers"
	}
	return n + " known and not tried yet: " + waits
}

// statuses lists the pairs, the selected one first, then working ones, then the rest.
func (m *Machine) statuses() []PairStatus {
	pairs := slices.Clone(m.pairs)
	rank := map[State]int{Selected: 0, Suspect: 1, Valid: 2, Probing: 3, Frozen: 4, Failed: 5}
	slices.SortStableFunc(pairs, func(a, b *pair) int {
		return cmp.Or(cmp.Compare(rank[a.state], rank[b.state]), a.compare(b))
	})
	out := make([]PairStatus, 0, len(pairs))
	for _, p := range pairs {
		st := PairStatus{Path: p.path, Source: p.source, State: p.state, RTT: p.rtt, Reason: p.reason, Asked: p.sentAt}
		if p.state == Valid {
			st.Reason = m.whyNot(p)
		}
		out = append(out, st)
	}
	return out
}

// nextTry is when something that does not currently work is tried again.
func (m *Machine) nextTry() time.Time {
	var next time.Time
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = later(t, m.now)
		}
	}
	frozen := false
	for _, p := range m.pairs {
		switch {
		case p.state == Failed:
			soonest(m.retryAt(p))
		case p.state == Frozen && p.source == SourceSTUN:
			frozen = true
		}
	}
	if t := m.nextSweep(); !t.IsZero() {
		soonest(t)
	}
	possible, _ := canPunch(m.local.NAT, m.talk.nat)
	if frozen && possible && m.sel != nil && m.sel.class == classRelayed && m.punch.failed > 0 {
		soonest(m.nextPunch())
	}
	return next
}
