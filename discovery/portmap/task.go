package portmap

import (
	"errors"
	"net/netip"
	"slices"
	"time"
)

// taskKind is the kind of a request to the router.
type taskKind uint8

const (
	taskMap    taskKind = iota // create or renew the mapping
	taskCheck                  // check that it still exists
	taskDelete                 // delete it
)

// task is one exchange with the router: a request, repeated until it is answered or given up.
type task struct {
	id       uint64
	kind     taskKind
	protocol Protocol
	waits    []time.Duration // after each transmission
	sent     int
	dueAt    time.Time  // of the next repetition, or of giving up
	address  netip.Addr // the external address, once NAT-PMP returned it
}

// upnpTimeout limits one task by UPnP: search, description and a few requests.
const upnpTimeout = 15 * time.Second

// upnpOrder is a task by UPnP.
type upnpOrder struct {
	id   uint64
	kind taskKind
	place
	internal uint16
	external netip.AddrPort // wanted, or to be checked or deleted; perhaps only a port
	lifetime time.Duration
}

// upnpResult is the result of an order.
type upnpResult struct {
	external netip.AddrPort
	lifetime time.Duration
	err      error
}

// schedule returns how often a request is sent and how long to wait each time.
func (m *machine) schedule(kind taskKind, p Protocol) []time.Duration {
	const ms = time.Millisecond
	switch {
	case p == UPnP:
		return []time.Duration{2 * upnpTimeout} // the driver ends it before
	case kind == taskDelete:
		// A lost deletion does little harm, and the gateway's shutdown waits for it.
		return []time.Duration{250 * ms, 500 * ms, 750 * ms}
	case p == NATPMP:
		// RFC 6886 §3.1 has nine, up to 64 s; UPnP should get its turn.
		return []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms}
	}
	// RFC 6887 §8.1.1: 3 s, then twice as long, each ± 10 %; two of them.
	first := time.Duration((0.9 + 0.2*m.random()) * float64(3*time.Second))
	return []time.Duration{first, 2 * first}
}

func (m *machine) start(now time.Time, kind taskKind, p Protocol) {
	m.lastID++
	m.task = &task{id: m.lastID, kind: kind, protocol: p, waits: m.schedule(kind, p), dueAt: now}
}

// end ends the task.
func (m *machine) end() {
	m.task = nil
	m.finished++
}

// startRound tries one protocol after the other, first the one that created the mapping.
func (m *machine) startRound(now time.Time) {
	m.tried, m.untried = nil, []Protocol{PCP, NATPMP, UPnP}
	m.fault = FaultUnreachable
	if p := m.mapping.protocol; p != "" {
		m.untried = slices.DeleteFunc(m.untried, func(x Protocol) bool { return x == p })
		m.untried = slices.Insert(m.untried, 0, p)
	}
	if m.place.router.Is6() {
		m.untried = []Protocol{PCP} // NAT-PMP and IGD only map IPv4
	}
	m.tryNext(now)
}

func (m *machine) tryNext(now time.Time) {
	for len(m.untried) > 0 {
		p := m.untried[0]
		m.untried = m.untried[1:]
		if p == PCP && now.Before(m.pcpHold) {
			m.tried = append(m.tried, PCP.because(m.pcpErr))
			m.fault = FaultRefused
			continue
		}
		m.start(now, taskMap, p)
		return
	}
	m.end()
	m.endRound(now)
}

// step sends the request again, or gives up.
func (m *machine) step(now time.Time, do *actions) {
	t := m.task
	if t.sent == len(t.waits) {
		m.fail(now, "no answer")
		return
	}
	t.dueAt = now.Add(t.waits[t.sent])
	t.sent++
	if t.protocol == UPnP {
		do.upnp = m.order()
		return
	}
	do.packet = m.request()
}

func (m *machine) order() *upnpOrder {
	o := &upnpOrder{
		id: m.task.id, kind: m.task.kind, place: m.place, internal: m.port,
		external: m.suggest, lifetime: wantLifetime,
	}
	if m.mapping.exists() {
		o.external = m.mapping.external
	}
	if o.external.Port() == 0 {
		o.external = netip.AddrPortFrom(netip.Addr{}, m.port)
	}
	return o
}

// request returns the task's datagram.
func (m *machine) request() []byte {
	t, lifetime := m.task, uint32(wantLifetime/time.Second)
	if t.kind == taskDelete {
		lifetime = 0
	}
	suggested := m.suggest
	if suggested.Port() == 0 {
		suggested = netip.AddrPortFrom(suggested.Addr(), m.port)
	}
	if t.protocol == NATPMP {
		switch {
		case t.kind == taskDelete:
			return natpmpMap(m.port, 0, 0) // RFC 6886 §3.4
		case t.kind == taskCheck || !t.address.IsValid():
			return natpmpAddress()
		}
		return natpmpMap(m.port, suggested.Port(), lifetime)
	}
	client := netip.AddrPortFrom(m.place.client, m.port)
	if t.kind == taskCheck {
		return pcpRequest{opcode: opAnnounce, client: client.Addr()}.encode()
	}
	any := netip.IPv4Unspecified()
	if client.Addr().Is6() {
		any = netip.IPv6Unspecified()
	}
	if t.kind == taskDelete {
		suggested = netip.AddrPortFrom(any, 0)
	} else if !suggested.Addr().IsValid() {
		suggested = netip.AddrPortFrom(any, suggested.Port())
	}
	return pcpRequest{
		opcode: opMap, lifetime: lifetime, client: client.Addr(), nonce: m.nonce(client),
		internal: m.port, external: suggested,
	}.encode()
}

// fail ends a task that failed.
func (m *machine) fail(now time.Time, why string) {
	t := m.task
	switch t.kind {
	case taskMap:
		m.tried = append(m.tried, t.protocol.because(why))
		m.tryNext(now)
	case taskCheck:
		m.end()
		m.checkErr = t.protocol.because(why)
		m.checkAt = now.Add(checkAfter)
		if t.protocol == UPnP {
			m.renewAt = now // it may have moved to another URL, which only a new search finds
		}
	case taskDelete:
		m.deleted(now)
	}
}

// denied is fail for a router that refuses.
func (m *machine) denied(now time.Time, why string) {
	if m.fault == FaultUnreachable {
		m.fault = FaultRefused
	}
	m.fail(now, why)
}

// deleted ends a deletion, answered or not.
func (m *machine) deleted(now time.Time) {
	m.end()
	if m.stopping {
		if m.mapping.exists() {
			m.tell(eventWithdrawn, "")
		}
		m.mapping = mapping{}
		return
	}
	if m.mapping.exists() {
		m.lose(now, "deleted, to be recreated")
	}
}

// refused reports that nothing listens on the router's port, or that it cannot be sent to.
func (m *machine) refused(now time.Time, why string) {
	if m.task == nil || m.task.protocol == UPnP || m.task.sent == 0 {
		return
	}
	if m.task.kind == taskMap {
		// NAT-PMP uses the same port.
		m.untried = slices.DeleteFunc(m.untried, func(p Protocol) bool { return p == PCP || p == NATPMP })
		if m.task.protocol == PCP {
			m.tried = append(m.tried, PCP.because(why))
			m.task.protocol = NATPMP
		}
	}
	m.fail(now, why)
}

// received handles a datagram from the router's port.
func (m *machine) received(now time.Time, packet []byte) {
	if m.task == nil || m.task.sent == 0 {
		return
	}
	switch m.task.protocol {
	case PCP:
		m.receivedPCP(now, packet)
	case NATPMP:
		m.receivedNATPMP(now, packet)
	case UPnP: // a late answer to a request that was given up
	}
}

func (m *machine) receivedPCP(now time.Time, packet []byte) {
	t := m.task
	if old, err := parseNATPMP(packet); err == nil && old.result == natpmpUnsuppVersion {
		m.fail(now, "it speaks only NAT-PMP") // RFC 6887 appendix A
		return
	}
	r, err := parsePCP(packet)
	if err != nil || !m.answers(r) {
		return
	}
	lost := m.epoch.heardPCP(now, r.epoch)
	switch {
	case t.kind == taskDelete:
		m.deleted(now)
	case r.result != pcpSuccess:
		if t.kind == taskMap {
			m.pcpErr = r.result.String()
			m.pcpHold = now.Add(min(seconds(r.lifetime), maxHold))
		}
		if r.result == pcpAddressMismatch {
			// The other protocols would map a port of that NAT's address.
			m.untried = nil
		}
		m.denied(now, r.result.String())
	case t.kind == taskMap:
		m.granted(now, r.external, seconds(r.lifetime))
	case lost:
		m.lose(now, "the router has lost its mappings")
	default:
		m.checked(now)
	}
}

// answers reports whether a response belongs to the outstanding request.
func (m *machine) answers(r pcpResponse) bool {
	t := m.task
	if t.kind == taskCheck {
		return r.opcode == opAnnounce
	}
	if r.opcode != opMap {
		return false
	}
	if !r.full {
		switch r.result {
		case pcpUnsuppVersion, pcpMalformedRequest, pcpUnsuppOpcode:
			return true // a server that does not read MAP cannot repeat it
		}
		return false
	}
	client := netip.AddrPortFrom(m.place.client, m.port)
	if r.nonce != m.nonce(client) || r.internal != m.port {
		return false
	}
	// Otherwise an answer to an earlier request: a mapping instead of a deletion or vice versa.
	return r.result != pcpSuccess || (r.lifetime == 0) == (t.kind == taskDelete)
}

func (m *machine) receivedNATPMP(now time.Time, packet []byte) {
	t := m.task
	if newer, err := parsePCP(packet); err == nil && newer.result == pcpUnsuppVersion {
		m.fail(now, "it speaks only PCP") // RFC 6887 appendix A
		return
	}
	r, err := parseNATPMP(packet)
	want := uint8(opMapUDP)
	if t.kind == taskCheck || t.kind == taskMap && !t.address.IsValid() {
		want = opAddress
	}
	if err != nil || r.opcode != want {
		return
	}
	if r.result == natpmpSuccess && want == opMapUDP && (r.internal != m.port || (r.lifetime == 0) != (t.kind == taskDelete)) {
		return
	}
	lost := r.result == natpmpSuccess && m.epoch.heardNATPMP(now, r.epoch)
	switch {
	case t.kind == taskDelete:
		m.deleted(now)
	case r.result != natpmpSuccess:
		m.denied(now, r.result.String())
	case t.kind == taskCheck && (lost || r.address != m.mapping.external.Addr()):
		why := "the router has lost its mappings"
		if !lost {
			why = "the router's address is now " + r.address.String()
		}
		m.lose(now, why)
	case t.kind == taskCheck:
		m.checked(now)
	case want == opAddress:
		t.address, t.sent, t.dueAt = r.address, 0, now // the port is next
	default:
		m.granted(now, netip.AddrPortFrom(t.address, r.external), seconds(r.lifetime))
	}
}

// upnpDone handles the result of an order.
func (m *machine) upnpDone(now time.Time, id uint64, r upnpResult) {
	if m.task == nil || m.task.id != id {
		return
	}
	switch m.task.kind {
	case taskDelete:
		m.deleted(now)
	case taskCheck:
		switch {
		case errorsGone(r.err):
			m.lose(now, r.err.Error())
		case r.err != nil:
			m.fail(now, r.err.Error())
		case r.external.Addr() != m.mapping.external.Addr():
			m.lose(now, "the router's address is now "+r.external.Addr().String())
		default:
			m.checked(now)
		}
	case taskMap:
		if errors.As(r.err, new(*soapError)) {
			m.denied(now, r.err.Error())
			return
		}
		if r.err != nil {
			m.fail(now, r.err.Error())
			return
		}
		m.granted(now, r.external, r.lifetime)
	}
}

// checked ends a successful check.
func (m *machine) checked(now time.Time) {
	m.end()
	m.checkErr, m.checkAt = "", now.Add(checkAfter)
}
