package path

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// class orders kinds of path, the best first.
type class uint8

const (
	classLAN class = iota
	classDirect
	classRelayed
)

// String names the class, for reasons.
func (c class) String() string {
	switch c {
	case classLAN:
		return "on the local network"
	case classDirect:
		return "direct"
	default:
		return "relayed"
	}
}

// classify returns the class of a path to an address from a source.
func classify(p peer.Path, source string) class {
	switch {
	case p.Via != "" || source == SourceRelay:
		return classRelayed
	case source == SourceLAN || p.Remote.Addr().IsPrivate():
		return classLAN
	default:
		return classDirect
	}
}

// pair is one path to the peer. Only [Machine.move] changes its state.
type pair struct {
	id        uint16
	path      peer.Path
	label     string // the path, for display
	source    string
	class     class
	order     uint8 // of preference within the class, 0 first ([Machine.SetOrder])
	reflexive bool  // learned from the peer's packets, not from a candidate

	state  State
	since  time.Time
	reason string

	// Outstanding probes (schedule.go).
	plan    []time.Duration // the current round, as offsets from began
	began   time.Time       // of the round
	due     time.Time       // when the next probe is due; zero = none
	asked   int             // probes since the last answer, or in this round
	askedAt time.Time       // when the first of them was sent
	sentAt  time.Time       // when the last probe was sent

	// Proof.
	answered time.Time // when the last probe was answered
	shaken   time.Time // when a handshake last completed on it
	heard    time.Time // when the peer last probed it
	// heardBefore is when the peer probed it at least a second before that.
	heardBefore time.Time
	answers     int // since the last failure
	rtt         time.Duration
	latest      [gainSamples]time.Duration // round trips, latest first
	mapped      netip.AddrPort

	failures    int // since it last worked for a while
	tried       time.Time
	silences    int
	barredUntil time.Time // the tunnel was silent on it

	mtu mtu
}

// proven is when the pair was last known to work in both directions.
func (p *pair) proven() time.Time { return later(p.answered, p.shaken) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// works reports whether the pair's state says that it recently worked.
func (p *pair) works() bool { return p.state == Valid || p.state == Selected }

func (p *pair) barred(now time.Time) bool { return p.barredUntil.After(now) }

// Cool-down of a path whose probes passed while the tunnel's data did not. It doubles each time,
// and is reset once the path has carried the tunnel for the longest cool-down.
const (
	firstBar   = 30 * time.Second
	longestBar = 10 * time.Minute
)

func (p *pair) bar(now time.Time) {
	if p.works() && p.silences > 0 && now.Sub(p.since) > longestBar {
		p.silences = 0
	}
	p.barredUntil = now.Add(min(firstBar<<min(p.silences, 10), longestBar))
	p.silences++
}

// sample records a round trip.
func (p *pair) sample(rtt time.Duration) {
	copy(p.latest[1:], p.latest[:])
	p.latest[0] = rtt
	if p.rtt == 0 {
		p.rtt = rtt
		return
	}
	p.rtt += (rtt - p.rtt) / 8 // RFC 6298 §2
}

func (p *pair) forgetSamples() {
	p.rtt, p.latest, p.answers = 0, [gainSamples]time.Duration{}, 0
}

// kind orders pairs by what the round trip does not change: the class, then the order that was set.
func (p *pair) kind(o *pair) int {
	return cmp.Or(cmp.Compare(p.class, o.class), cmp.Compare(p.order, o.order))
}

// compare orders pairs: the kind, then the round trip, then age.
func (p *pair) compare(o *pair) int {
	return cmp.Or(
		p.kind(o),
		cmp.Compare(p.rtt, o.rtt),
		cmp.Compare(p.id, o.id),
	)
}

// move is the only place where a pair changes its state.
func (m *Machine) move(p *pair, to State, reason string) {
	from := p.state
	p.reason = reason
	if from == to {
		return
	}
	p.state, p.since = to, m.now
	switch to {
	case Frozen:
		p.due = time.Time{}
	case Probing:
	case Valid, Selected:
		if from != Valid && from != Selected && p.answered != m.now {
			// Proven by a handshake: the probes continue.
			p.due = m.now
		}
	case Suspect:
	case Failed:
		p.due, p.tried = time.Time{}, m.now
		p.failures++
		p.forgetSamples()
	}
	if !m.routine(p, from, to) {
		m.note(p.label+" "+to.String(), reason)
	}
}

// routine reports whether a transition merely recurs: retries of what failed before, and the pauses
// between them.
func (m *Machine) routine(p *pair, from, to State) bool {
	switch to {
	case Probing:
		return true
	case Failed:
		return from == Probing && p.failures > 1
	case Frozen:
		return from == Probing || from == Failed
	default:
		return false
	}
}

// drop forgets a pair.
func (m *Machine) drop(p *pair, why string) {
	if p.works() || p.state == Suspect {
		m.move(p, Failed, why)
	}
	if m.sel == p {
		m.lose(why)
	}
	for i, x := range m.pairs {
		if x == p {
			m.pairs = append(m.pairs[:i:i], m.pairs[i+1:]...)
			return
		}
	}
}

// find returns the pair of a path, nil if there is none.
func (m *Machine) find(path peer.Path) *pair {
	for _, p := range m.pairs {
		if p.path == path {
			return p
		}
	}
	return nil
}

// Label formats a path for people, with a relay shown by its server.
func (m *Machine) Label(p peer.Path) string {
	for _, r := range m.local.Relays {
		if r.Via == p.Via && r.Server != "" {
			return p.Remote.String() + " via " + r.Server
		}
	}
	return p.String()
}

// add creates a pair.
func (m *Machine) add(path peer.Path, source string) *pair {
	m.lastID++
	p := &pair{
		id: m.lastID, path: path, label: m.Label(path), source: source, class: classify(path, source),
		order: m.order[path.Remote], state: Frozen, since: m.now, reason: "new",
	}
	m.pairs = append(m.pairs, p)
	return p
}
