package portmap

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// wantLifetime is the requested lifetime: less than the 2 h of RFC 6886 §3.3, so that the
	// mapping of a killed gateway ends sooner.
	wantLifetime = time.Hour
	// maxLifetime limits the lifetime in an answer (RFC 6887 §15).
	maxLifetime = 24 * time.Hour
	// minRenewal is the least time between attempts to renew (RFC 6887 §11.2.1).
	minRenewal = 4 * time.Second
	// checkAfter is how often the router is asked whether it lost its mappings, and our routes
	// whether it is still the router. That takes one datagram each way.
	checkAfter = 30 * time.Second
	// A round in which no protocol gave a mapping is repeated after retryFirst, then after twice
	// as long each time, up to retryMost.
	retryFirst, retryMost = 30 * time.Second, 15 * time.Minute
	// maxHold limits how long an error prevents another try of PCP (RFC 6887 §7.4: long lifetime
	// errors last 30 min).
	maxHold = 30 * time.Minute
	// A useless mapping is recreated after remakeFirst at the earliest, then after twice as long
	// each time, up to remakeMost: the router may have to be fixed first.
	remakeFirst, remakeMost = 5 * time.Minute, time.Hour
)

// place is the router to ask and our address towards it.
type place struct{ router, client netip.Addr }

// mapping is what the router granted. The zero value is none.
type mapping struct {
	protocol           Protocol
	internal, external netip.AddrPort
	lifetime           time.Duration
	made, expires      time.Time
}

func (m mapping) exists() bool { return m.external.IsValid() }

// machine keeps one mapping: events and the time in, actions and the next deadline out. It has no
// clock and is not safe for concurrent use.
type machine struct {
	nonce  func(client netip.AddrPort) nonce // the same for the same client
	random func() float64                    // from [0, 1)

	place    place
	placeErr string
	lookAt   time.Time
	port     uint16

	mapping  mapping
	suggest  netip.AddrPort // our last external address
	renewAt  time.Time
	checkAt  time.Time
	remake   bool   // delete it and create another
	useless  bool   // already reported as useless
	doubt    string // why the last one was dead, until a test shows that this one is not
	remakeAt time.Time
	remakes  int
	reviewAt time.Time // when to judge a useless mapping again; zero = at the next observation
	seen     Observation

	task     *task
	lastID   uint64
	untried  []Protocol // in this round
	tried    []string   // what failed in this round, and why
	retryAt  time.Time
	failures int       // rounds in a row
	pcpHold  time.Time // PCP is not used before
	pcpErr   string    // why
	epoch    epochClock

	err      string // of the last round, or why the mapping was lost
	fault    Fault  // of this round so far
	faulted  Fault  // of the last one
	checkErr string // of the last check
	settled  bool   // the first round has ended
	stopping bool
	finished uint64 // tasks that have ended
	events   []event
}

// actions are what the driver has to do.
type actions struct {
	look   bool       // find the router, then setPlace
	packet []byte     // send to the router's port 5351
	upnp   *upnpOrder // do, then upnpDone
}

// event is something to log.
type event struct {
	kind   eventKind
	detail string
	status Status
}

type eventKind uint8

const (
	eventMapped eventKind = iota
	eventLost
	eventFailed
	eventUseless
	eventWithdrawn
)

func (m *machine) tell(kind eventKind, detail string) {
	m.events = append(m.events, event{kind, detail, m.status()})
}

// poll returns what is due and the latest time of the next poll.
func (m *machine) poll(now time.Time) (actions, time.Time) {
	var do actions
	if !m.stopping && !now.Before(m.lookAt) {
		do.look = true
		m.lookAt = now.Add(checkAfter)
	}
	if m.mapping.exists() && !now.Before(m.mapping.expires) && !m.stopping {
		m.lose(now, "it expired, and the router did not renew it")
	}
	if !m.reviewAt.IsZero() && !now.Before(m.reviewAt) {
		m.reviewAt = time.Time{}
		m.consider(now)
	}
	if m.task == nil {
		m.begin(now)
	}
	for m.task != nil && !now.Before(m.task.dueAt) && do.packet == nil && do.upnp == nil {
		m.step(now, &do)
	}
	return do, m.deadline()
}

// begin starts the task that is due, if any.
func (m *machine) begin(now time.Time) {
	switch {
	case m.stopping || !m.ready():
	case m.mapping.exists() && m.remake:
		m.start(now, taskDelete, m.mapping.protocol)
	case m.mapping.exists() && !now.Before(m.renewAt):
		m.startRound(now)
	case m.mapping.exists() && !now.Before(m.checkAt):
		m.start(now, taskCheck, m.mapping.protocol)
	case !m.mapping.exists() && !now.Before(m.retryAt):
		m.startRound(now)
	}
}

func (m *machine) ready() bool { return m.place.router.IsValid() && m.port != 0 }

// deadline returns when poll has something to do, apart from events.
func (m *machine) deadline() time.Time {
	if m.stopping {
		if m.task != nil {
			return m.task.dueAt
		}
		return m.lookAt
	}
	next := m.lookAt
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	switch {
	case m.task != nil:
		soonest(m.task.dueAt)
	case m.ready() && m.mapping.exists():
		soonest(m.renewAt)
		soonest(m.checkAt)
	case m.ready():
		soonest(m.retryAt)
	}
	if m.mapping.exists() {
		soonest(m.mapping.expires)
	}
	if !m.reviewAt.IsZero() {
		soonest(m.reviewAt)
	}
	return next
}

// setPlace sets the router and our address towards it. A change voids everything known.
func (m *machine) setPlace(now time.Time, p place, err error) {
	m.placeErr = ""
	if err != nil {
		m.placeErr = err.Error()
		m.settled = true
	}
	if p == m.place {
		return
	}
	if m.mapping.exists() {
		m.lose(now, "the network changed")
	}
	m.place, m.suggest, m.faulted = p, netip.AddrPort{}, FaultNone
	m.reset(now)
}

// setPort sets the port that the mapping should lead to.
func (m *machine) setPort(now time.Time, port uint16) {
	if port == m.port {
		return
	}
	if m.mapping.exists() {
		m.lose(now, "the gateway's port changed")
	}
	m.port = port
	m.reset(now)
}

// reset asks the router at once, as if for the first time.
func (m *machine) reset(now time.Time) {
	m.task, m.epoch, m.failures, m.retryAt = nil, epochClock{}, 0, now
	m.pcpHold, m.remakes, m.remakeAt, m.reviewAt, m.doubt = time.Time{}, 0, time.Time{}, time.Time{}, ""
}

// lose gives up the mapping and requests it again at once.
func (m *machine) lose(now time.Time, why string) {
	was := m.mapping
	m.tell(eventLost, why)
	m.suggest = was.external
	m.mapping, m.remake, m.useless, m.reviewAt, m.faulted = mapping{}, false, false, time.Time{}, FaultNone
	if m.task != nil {
		m.end()
	}
	m.retryAt, m.failures, m.err, m.checkErr = now, 0, why, ""
}

// granted records a mapping that the router has created or renewed.
func (m *machine) granted(now time.Time, external netip.AddrPort, lifetime time.Duration) {
	external = netip.AddrPortFrom(external.Addr().Unmap(), external.Port())
	if v, _, why := judge(external, Observation{}); v == impossible {
		m.fault = FaultImpossible
		m.fail(now, why)
		return
	}
	lifetime = min(lifetime, maxLifetime)
	was := m.mapping
	m.mapping = mapping{
		protocol: m.task.protocol, internal: netip.AddrPortFrom(m.place.client, m.port), external: external,
		lifetime: lifetime, made: now, expires: now.Add(lifetime),
	}
	m.suggest, m.failures, m.err, m.checkErr, m.settled, m.pcpErr, m.fault = external, 0, "", "", true, "", FaultNone
	m.faulted = FaultNone
	m.end()
	m.renewAt = now.Add(max(minRenewal, lifetime/2+time.Duration(m.random()*float64(lifetime)/8)))
	m.checkAt = now.Add(checkAfter)
	if same := was.external == external && was.protocol == m.mapping.protocol; was.exists() && same {
		m.mapping.made = was.made
		return
	}
	m.tell(eventMapped, "")
	m.consider(now)
}

// observe sets what is seen from outside.
func (m *machine) observe(now time.Time, o Observation) {
	if slices.Equal(o.Public, m.seen.Public) && o.Inbound == m.seen.Inbound && o.Tested.Equal(m.seen.Tested) {
		return
	}
	o.Public = slices.Clone(o.Public)
	m.seen = o
	m.consider(now)
}

// consider deletes and recreates a mapping that is useless although the router lists it, at a
// limited rate.
func (m *machine) consider(now time.Time) {
	if !m.mapping.exists() || m.remake || m.stopping {
		return
	}
	v, proof, why := m.judge()
	if proof == ProofInbound {
		m.remakes, m.doubt = 0, ""
	}
	if v == dead {
		m.doubt = why
	}
	if v == usable || v == impossible {
		m.useless = false
		return
	}
	if !m.useless {
		m.useless = true
		m.tell(eventUseless, why)
	}
	if v == behindNAT {
		return
	}
	if now.Before(m.remakeAt) {
		m.reviewAt = m.remakeAt
		return
	}
	m.remakeAt = now.Add(min(remakeFirst<<min(m.remakes, 8), remakeMost))
	m.remakes++
	m.remake = true
	if m.task != nil && m.task.kind == taskCheck {
		m.task = nil
	}
}

// judge compares the mapping with the last observation. A test from before the mapping was
// created says nothing.
func (m *machine) judge() (verdict, Proof, string) {
	o := m.seen
	if !o.Tested.Equal(m.mapping.made) {
		o.Inbound = InboundUnknown
	}
	return judge(m.mapping.external, o)
}

// askNow asks the router at once: to check the mapping, or for one.
func (m *machine) askNow(now time.Time) {
	m.lookAt, m.checkAt, m.retryAt, m.pcpHold = now, now, now, time.Time{}
}

// stop deletes the mapping. The machine has stopped once idle reports so.
func (m *machine) stop(now time.Time) {
	protocol := m.mapping.protocol
	if m.task != nil && m.task.kind == taskMap {
		protocol = m.task.protocol // it may just be being created
	}
	m.stopping, m.task = true, nil
	if protocol != "" && m.ready() {
		m.start(now, taskDelete, protocol)
	}
}

func (m *machine) idle() bool { return m.task == nil }

// status returns the state.
func (m *machine) status() Status {
	s := Status{Router: m.place.router, Err: m.err}
	if x := m.mapping; x.exists() {
		s.Protocol, s.Internal, s.External = x.protocol, x.internal, x.external
		s.Made, s.ExpiresAt, s.Lifetime = x.made, x.expires, x.lifetime
		v, proof, why := m.judge()
		if s.State, s.Proof = StateMapped, proof; v != usable || m.remake {
			s.State = StateUseless
			s.Fault = v.fault()
		} else if m.doubt != "" {
			s.Fault = FaultStale
		}
		s.Err = cmp.Or(why, m.doubt, m.err, m.checkErr)
		return s
	}
	s.Fault = m.faulted
	switch {
	case !m.ready():
		s.State, s.Err = StateWaiting, m.placeErr
		if m.place.router.IsValid() {
			s.Err = "the gateway's port is not open yet"
		} else if m.placeErr != "" {
			s.Fault = FaultUnreachable
		}
	case m.task != nil:
		s.State, s.Protocol = StateAsking, m.task.protocol
	case m.failures > 0:
		s.State, s.RetryAt = StateFailed, m.retryAt
	default:
		s.State = StateAsking
	}
	return s
}

// endRound is called when every protocol has failed.
func (m *machine) endRound(now time.Time) {
	m.err, m.settled = strings.Join(m.tried, "; "), true
	if m.mapping.exists() {
		left := m.mapping.expires.Sub(now)
		m.renewAt = now.Add(max(minRenewal, left/2))
		return
	}
	m.retryAt = now.Add(min(retryFirst<<min(m.failures, 8), retryMost))
	m.faulted = m.fault
	m.failures++
	if m.failures == 1 {
		m.tell(eventFailed, m.err)
	}
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

func (p Protocol) because(why string) string { return fmt.Sprintf("%s: %s", p, why) }
