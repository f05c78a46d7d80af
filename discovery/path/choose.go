package path

import (
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// A path of the same class must be faster than the selected one by the greater of gainShare and
	// gainLeast, gainSamples times in a row, and at least calm after the last change.
	gainShare   = 0.2
	gainLeast   = 10 * time.Millisecond
	gainSamples = 3
	calm        = 30 * time.Second
	// betterAnswers is how many answers a path of a better class needs.
	betterAnswers = 2
	// freshFor is how recent a reserve path's last answer must be for it to be selected.
	freshFor = 10 * time.Second
	// leftAfter is when the peer counts as having left a path it used: it probes the path at least
	// every 3 s, and repeats lost probes at once.
	leftAfter = 4500 * time.Millisecond
	// followWithin is how long the peer gets to follow a path change after silence.
	followWithin = 10 * time.Second
	// deadAt is the number of unanswered probes after which a path counts as dead, and not as left
	// by the peer.
	deadAt = 3
	// movedAt is the number of unanswered probes after which a path is given up for a new one that
	// the peer has used since: by then the first probe has had a round trip and a half for its
	// answer.
	movedAt = 2
	// session is the lifetime of a WireGuard session (REJECT_AFTER_TIME): a new path gets a
	// handshake if there was none in that time.
	session = 180 * time.Second
)

// rule says when a reserve path replaces the selected one, and why.
type rule struct {
	holds func(m *Machine, sel, p *pair) (why string, holds bool)
	bars  bool // the selected path is barred for a while, as after the tunnel's silence
	gone  bool // it no longer leads anywhere
}

// rules are tried in order, each for the reserves in theirs: by class, order, then round trip.
var rules = []rule{
	{holds: insteadOfNothing},
	{holds: insteadOfDead},
	{holds: betterKind},
	{holds: left, bars: true},
	{holds: moved, gone: true},
	{holds: faster},
	{holds: shared},
}

func insteadOfNothing(_ *Machine, sel, p *pair) (string, bool) {
	return fmt.Sprintf("%s, the best that answered", p.class), sel == nil
}

func insteadOfDead(_ *Machine, sel, p *pair) (string, bool) {
	if sel == nil || sel.state == Selected {
		return "", false
	}
	return fmt.Sprintf("%s, instead of %s: %s", p.class, sel.label, sel.reason), true
}

func betterKind(m *Machine, sel, p *pair) (string, bool) {
	if sel == nil || p.kind(sel) >= 0 || p.answers < betterAnswers && m.judged(p) {
		return "", false
	}
	if p.class == sel.class {
		return fmt.Sprintf("preferred to %s by the order of the peer's records", sel.label), true
	}
	return fmt.Sprintf("%s, instead of a path that is %s", p.class, sel.class), true
}

// left holds if the peer has stopped probing the selected path and keeps probing a worse one
// instead. Its probes would pass as ours do, so its data did not: it has demoted the path for
// silence, and does not hear us until we follow. If our own probes go unanswered, too, the path is
// dead and nobody has left it.
func left(m *Machine, sel, p *pair) (string, bool) {
	if sel == nil || p.class <= sel.class || m.idle() || sel.asked >= deadAt || !sel.heard.After(sel.since) ||
		m.now.Sub(sel.heard) <= leftAfter || m.now.Sub(p.heardBefore) >= 2*leftAfter {
		return "", false
	}
	return fmt.Sprintf("the peer has left %s, though probes pass there", sel.label), true
}

// moved holds if the peer's NAT gave it another address: its packets come from there, and did not
// before the selected path fell silent.
func moved(m *Machine, sel, p *pair) (string, bool) {
	if sel == nil || p.class != sel.class || sel.asked < movedAt || m.now.Sub(sel.askedAt) < sel.rtt*3/2 ||
		!p.heard.After(sel.answered) || !p.since.After(sel.answered) {
		return "", false
	}
	return fmt.Sprintf("the peer comes from there, and no longer from %s", sel.path.Remote), true
}

func faster(m *Machine, sel, p *pair) (string, bool) {
	if sel == nil || p.kind(sel) != 0 || sel.rtt == 0 || m.now.Sub(m.switched) < calm {
		return "", false
	}
	if slices.Contains(p.latest[:], 0) || slices.Max(p.latest[:])+minGain(sel) >= sel.rtt {
		return "", false
	}
	return fmt.Sprintf("faster: %s against %s", roughly(p.rtt), roughly(sel.rtt)), true
}

// minGain is how much faster than a pair another must be.
func minGain(p *pair) time.Duration {
	return max(time.Duration(gainShare*float64(p.rtt)), gainLeast)
}

// shared makes the high side follow the low one when both are idle on equal paths, so that one
// exchange keeps both sides alive.
func shared(m *Machine, sel, p *pair) (string, bool) {
	if sel == nil || m.o.Low || !m.idle() || p.kind(sel) != 0 || m.now.Sub(m.switched) < calm {
		return "", false
	}
	window := 2 * time.Duration(float64(m.o.Keepalive)*longestTurn)
	holds := p.rtt < sel.rtt+minGain(sel) && m.now.Sub(p.heard) < window && m.now.Sub(sel.heard) > window
	return "as good, and kept alive by the peer", holds
}

// usable reports whether a pair may be selected: recently proven, and not barred.
func (m *Machine) usable(p *pair) bool {
	if p.state != Valid || p.barred(m.now) {
		return false
	}
	return !m.judged(p) || m.now.Sub(p.answered) <= freshFor
}

// choose selects the best path by the rules.
func (m *Machine) choose() {
	var reserves []*pair
	for _, p := range m.pairs {
		if p != m.sel && m.usable(p) {
			reserves = append(reserves, p)
		}
	}
	slices.SortFunc(reserves, (*pair).compare)
	for _, p := range reserves {
		for _, r := range rules {
			if why, holds := r.holds(m, m.sel, p); holds {
				if r.bars {
					m.sel.bar(m.now)
				}
				if r.gone {
					m.move(m.sel, Failed, "the peer has moved to "+p.label)
				}
				m.use(p, why)
				return
			}
		}
	}
	m.review()
}

// review examines the selected path if nothing replaces it.
func (m *Machine) review() {
	m.foundAgain()
	s := m.sel
	switch {
	case s == nil:
	case s.state == Valid || s.state == Suspect && !s.barred(m.now) && s.asked == 0 && s.answered.After(s.since):
		m.move(s, Selected, "answers again")
	case s.state == Suspect && s.barred(m.now):
		m.at(s.barredUntil)
	case s.state != Selected && s.state != Suspect:
		m.lose(s.reason)
	}
	if m.sel != nil && m.now.Sub(m.switched) < calm {
		m.at(m.switched.Add(calm))
	}
}

// use selects a pair.
func (m *Machine) use(p *pair, why string) {
	old := m.sel
	m.sel, m.why, m.switched = p, why, m.now
	m.foundAgain()
	m.move(p, Selected, why)
	switch {
	case old == nil:
	case old.barred(m.now):
		if old.state == Selected {
			m.move(old, Suspect, "the peer has left it for "+p.label)
		}
		m.move(old, Failed, old.reason+", though probes may be; kept out for "+roughly(old.barredUntil.Sub(m.now)))
	case old.state == Selected:
		m.move(old, Valid, "replaced by "+p.label)
	}
	if p.asked == 0 {
		again := min(activeEvery, m.o.Keepalive)
		if old != nil && old.barred(m.now) {
			again = time.Second // this is how the peer learns of it: see left
		}
		p.due = sooner(p.due, m.now.Add(again))
	}
	if m.now.Sub(m.shaken) > session {
		m.handshake = true
	}
	m.talk.stale = true
}

// sooner returns the earlier of two times, of which a may be unset.
func sooner(a, b time.Time) time.Time {
	if !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// lose leaves the machine without a path.
func (m *Machine) lose(why string) {
	m.note("no path", m.sel.label+": "+why)
	m.why = "the last path, " + m.sel.label + ", failed: " + why
	m.last = lastPath{m.sel.path, m.sel.class}
	m.sel, m.switched = nil, m.now
	for _, p := range m.pairs {
		p.failures = min(p.failures, 1)
	}
	m.punch.forgive()
}

// whyNot says why a working pair is not the selected one.
func (m *Machine) whyNot(p *pair) string {
	s := m.sel
	switch {
	case s == nil:
		return p.reason
	case p.class > s.class:
		return fmt.Sprintf("in reserve: %s, and the selected path is %s", p.class, s.class)
	case p.class == s.class && p.order > s.order:
		return "in reserve: the selected path comes before it in the order of the peer's records"
	case p.rtt > s.rtt:
		return fmt.Sprintf("slower than the selected path (%s against %s)", roughly(p.rtt), roughly(s.rtt))
	case p.class == s.class && p.rtt == s.rtt:
		return fmt.Sprintf("no faster than the selected path (%s)", roughly(s.rtt))
	case p.class == s.class:
		return fmt.Sprintf("not enough faster than the selected path (%s against %s)", roughly(p.rtt), roughly(s.rtt))
	default:
		return p.reason
	}
}

// route returns the routing if it changed.
func (m *Machine) route() *Routing {
	r := Routing{Initiate: m.initiate()}
	if m.sel != nil {
		r.Selected, r.MTU = m.sel.path, m.overlayMTU(m.sel)
	}
	if slices.Equal(r.Initiate, m.routing.Initiate) && r.Selected == m.routing.Selected && r.MTU == m.routing.MTU {
		return nil
	}
	m.routing = r
	out := r
	out.Initiate = slices.Clone(r.Initiate)
	return &out
}

// initiate lists the paths for handshakes: those that work, then those that might, never frozen
// ones.
func (m *Machine) initiate() []peer.Path {
	rank := func(p *pair) int {
		switch {
		case p == m.sel:
			return 0
		case p.works():
			return 1
		case p.barred(m.now):
			return 3
		default:
			return 2
		}
	}
	var tried []*pair
	for _, p := range m.pairs {
		if p.state != Frozen {
			tried = append(tried, p)
		}
	}
	slices.SortStableFunc(tried, func(a, b *pair) int {
		if r := rank(a) - rank(b); r != 0 {
			return r
		}
		if r := a.kind(b); r != 0 {
			return r
		}
		return int(a.id) - int(b.id)
	})
	var out []peer.Path
	for _, p := range tried[:min(len(tried), peer.MaxPaths)] {
		out = append(out, p.path)
	}
	return out
}
