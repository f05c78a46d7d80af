package discovery

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/stunwire"
)

// hostsAfter is how often the interfaces are read: half of the time it takes to notice a lost path
// (6.5 s), so that a changed address is known first.
const hostsAfter = 3 * time.Second

// gatherer is the state machine of an [Agent]: events and the time in, actions and the next
// deadline out. It has no clock and is not safe for concurrent use.
type gatherer struct {
	newTx  func() stunwire.TxID
	jitter func() time.Duration // 0 up to refreshJitter

	advertised []*name
	services   []service
	servers    []*server
	exclude    []netip.Prefix
	nowhere    []netip.Prefix // those of exclude that stay so whoever sees us there

	port      uint16
	hosts     []netip.Addr
	hostsErr  string
	hostsRead bool
	hostsDue  time.Time

	// changedAt is when a mapping last changed. Earlier answers say nothing about the current NAT.
	changedAt time.Time
	tests     natTests
	testedAt  time.Time // when a test last sent something
	// mapping is that of the router's port; nil when no router is asked. mappingSettled
	// says that one was asked, or that there is none to ask.
	mapping        *portmap.Status
	mappingSettled bool

	spoken []netip.AddrPort // that is sent to for other reasons: relays
	counts Transactions
	events []event
}

// server is a configured STUN server: a name and at most one target per family.
type server struct {
	*name
	targets []*target
}

// actions are what the driver has to do.
type actions struct {
	send      []datagram
	resolve   []string
	readHosts bool
}

// datagram is a request to send.
type datagram struct {
	to     netip.AddrPort
	tx     stunwire.TxID
	packet []byte
}

// event is something to log.
type event struct {
	kind   eventKind
	what   string // the server, name or interface list concerned
	detail string
}

type eventKind uint8

const (
	serverFailed eventKind = iota
	serverAnswers
	mappingChanged
	nameFailed
	hostsFailed
	hostsChanged
)

// poll returns what is due and the latest time of the next poll.
func (g *gatherer) poll(now time.Time) (actions, time.Time) {
	var do actions
	if !now.Before(g.hostsDue) {
		do.readHosts = true
		g.hostsDue = now.Add(hostsAfter)
	}
	next := g.hostsDue
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, n := range g.names() {
		if n.step(now) && !slices.Contains(do.resolve, n.host) {
			do.resolve = append(do.resolve, n.host)
		}
		if n.host != "" && !n.resolving {
			soonest(n.due)
		}
	}
	for _, s := range g.servers {
		for _, t := range s.targets {
			g.stepTarget(now, s, t, &do)
			soonest(t.due)
			if at, expired := t.expire(now); !expired && !at.IsZero() {
				soonest(at)
			}
		}
	}
	if at := g.pollTests(now, &do); !at.IsZero() && at.After(now) {
		soonest(at)
	}
	return do, next
}

func (g *gatherer) stepTarget(now time.Time, s *server, t *target, do *actions) {
	request, timedOut := t.step(now, g.newTx)
	if timedOut {
		g.counts.Timeout++
		g.fail(now, s, t, timeoutReason())
	}
	if request != nil {
		do.send = append(do.send, datagram{t.addr, t.tx, request})
	}
}

// names returns all configured names.
func (g *gatherer) names() []*name {
	out := slices.Clone(g.advertised)
	for _, s := range g.services {
		out = append(out, s.name)
	}
	for _, s := range g.servers {
		out = append(out, s.name)
	}
	return out
}

// setPort sets the port of the gateway's socket. A new port voids everything learned about the
// mapping.
func (g *gatherer) setPort(now time.Time, port uint16) {
	if port == g.port {
		return
	}
	g.port = port
	g.tests = natTests{}
	for _, s := range g.servers {
		for _, t := range s.targets {
			t.asking, t.mapped, t.due = false, netip.AddrPort{}, now
		}
	}
}

// setHosts sets the host's addresses. If they changed, the route out may have changed, too.
func (g *gatherer) setHosts(now time.Time, addrs []netip.Addr, err error) {
	first := !g.hostsRead
	g.hostsRead = true
	if err != nil {
		if g.hostsErr == "" {
			g.events = append(g.events, event{hostsFailed, "", err.Error()})
		}
		g.hostsErr = err.Error()
		return
	}
	g.hostsErr = ""
	hosts := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		hosts = append(hosts, a.Unmap())
	}
	slices.SortFunc(hosts, netip.Addr.Compare)
	hosts = slices.Compact(hosts)
	if !first && !slices.Equal(hosts, g.hosts) {
		g.events = append(g.events, event{hostsChanged, "", difference(g.hosts, hosts)})
		g.tests = natTests{}
		g.askAll(now, nil)
	}
	g.hosts = hosts
}

// slept reports that the process was suspended: mappings may be gone, names may have moved.
func (g *gatherer) slept(now time.Time) {
	g.hostsDue = now
	for _, n := range g.names() {
		n.due = now
	}
	g.askAll(now, nil)
}

// difference formats additions and removals: "+192.0.2.7 -192.0.2.5".
func difference(before, after []netip.Addr) string {
	var out []string
	for _, a := range after {
		if !slices.Contains(before, a) {
			out = append(out, "+"+a.String())
		}
	}
	for _, a := range before {
		if !slices.Contains(after, a) {
			out = append(out, "-"+a.String())
		}
	}
	return strings.Join(out, " ")
}

// resolved records the result of a resolution.
func (g *gatherer) resolved(now time.Time, host string, addrs []netip.Addr, err error) {
	for _, n := range g.names() {
		if n.host != host || !n.resolving {
			continue
		}
		failing := n.failures > 0
		n.resolved(now, addrs, err)
		if n.err != "" && !failing {
			g.events = append(g.events, event{nameFailed, n.text, n.err})
		}
	}
	for _, s := range g.servers {
		if s.host == host {
			s.retarget(now)
		}
	}
}

// retarget follows a server's addresses: the target of a family stays while its address is among
// them, so that rotating DNS answers do not look like another server.
func (s *server) retarget(now time.Time) {
	var keep []*target
	for _, v4 := range []bool{true, false} {
		of := func(a netip.AddrPort) bool { return a.Addr().Is4() == v4 }
		addrs := slices.DeleteFunc(s.addrPorts(), func(a netip.AddrPort) bool { return !of(a) })
		if len(addrs) == 0 {
			continue
		}
		i := slices.IndexFunc(s.targets, func(t *target) bool { return slices.Contains(addrs, t.addr) })
		if i >= 0 {
			keep = append(keep, s.targets[i])
		} else {
			keep = append(keep, &target{addr: addrs[0], due: now})
		}
	}
	s.targets = keep
}

// sendFailed records that a request could not be sent. It gives the transaction up at once: a host
// without IPv6 should not wait for an IPv6 server.
func (g *gatherer) sendFailed(now time.Time, d datagram, err error) {
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.asking && t.tx == d.tx {
				g.counts.Unsent++
				g.fail(now, s, t, fmt.Sprintf("send: %v", err))
			}
		}
	}
}

// awaits reports whether a message has the transaction id of an unanswered request. While the NAT is
// being tested it may be the test's, whose ids are unknown here.
func (g *gatherer) awaits(packet []byte) bool {
	if g.tests.running != nil {
		return true
	}
	const idAt = 8 // RFC 8489 §5
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.asking && bytes.Equal(t.tx[:], packet[idAt:stunwire.HeaderSize]) {
				return true
			}
		}
	}
	return false
}

// handle handles a STUN message from the gateway's socket and reports whether it answered one of our
// requests.
func (g *gatherer) handle(now time.Time, packet []byte, from netip.AddrPort) bool {
	m, err := stunwire.Parse(packet)
	if err != nil || m.Class != stunwire.Success && m.Class != stunwire.Error {
		return false
	}
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t.answers(m, from) {
				g.answer(now, s, t, m)
				return true
			}
		}
	}
	return g.tests.running != nil && g.tests.running.Handle(now, packet, from)
}

// answer handles a response to a target's transaction.
func (g *gatherer) answer(now time.Time, s *server, t *target, m *stunwire.Message) {
	if m.Class == stunwire.Error {
		// Its text is foreign and stays out of logs and screens.
		g.counts.Error++
		g.fail(now, s, t, fmt.Sprintf("the server answers error %d", m.Code))
		return
	}
	if why := unusable(m.Mapped.Addr()); why != "" {
		g.counts.Error++
		g.fail(now, s, t, fmt.Sprintf("the server says that our address is %v: %s", m.Mapped, why))
		return
	}
	g.counts.Success++
	if t.failures > 0 {
		g.events = append(g.events, event{serverAnswers, s.label(t), ""})
	}
	before := t.mapped
	t.answered(now, m.Mapped, m.Other, g.jitter())
	if before.IsValid() && before != m.Mapped {
		g.events = append(g.events, event{mappingChanged, s.label(t), fmt.Sprintf("%v, before %v", m.Mapped, before)})
		// Query the others, too, but not for ever if every answer differs.
		if now.Sub(g.changedAt) >= refreshAfter-refreshJitter {
			g.changedAt = now
			g.tests = natTests{}
			g.askAll(now, t)
		}
	}
}

func (g *gatherer) askAll(now time.Time, but *target) {
	for _, s := range g.servers {
		for _, t := range s.targets {
			if t != but {
				t.askNow(now)
			}
		}
	}
}

func (g *gatherer) fail(now time.Time, s *server, t *target, reason string) {
	if t.failures == 0 {
		g.events = append(g.events, event{serverFailed, s.label(t), reason})
	}
	t.failed(now, reason, g.jitter())
}

// label names a target for display: the configured text, with the address if that says more.
func (s *server) label(t *target) string {
	if s.host == "" {
		return s.text
	}
	return fmt.Sprintf("%s (%v)", s.text, t.addr)
}

// pending lists what gathering still waits for; empty when it is complete.
func (g *gatherer) pending() []string {
	var out []string
	if !g.hostsRead {
		out = append(out, "interface addresses")
	}
	if g.mapping != nil && !g.mappingSettled {
		out = append(out, "port mapping")
	}
	for _, n := range g.names() {
		if !n.settled {
			out = append(out, "resolving "+n.text)
		}
	}
	for _, s := range g.servers {
		for _, t := range s.targets {
			if !t.settled {
				out = append(out, "STUN server "+s.label(t))
			}
		}
	}
	return out
}
