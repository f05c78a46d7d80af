package lan

import (
	"bytes"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// claimState is the state of the link's claim to the gateway's names.
//
//	unclaimed ──port──▶ probing ──3 probes unanswered──▶ announcing ──told twice──▶ held
//	                     ▲ │ ▲                               │                       │
//	        another name └─┘ └────────── conflict ───────────┴───────────────────────┘
type claimState int

const (
	unclaimed claimState = iota
	probing
	announcing
	held
)

const (
	probes        = 3                      // RFC 6762 §8.1
	probePause    = 250 * time.Millisecond // between probes, and the longest before the first
	announcements = 2                      // §8.3
	deferPause    = time.Second            // after a lost tie (§8.2)
	// After maxConflicts within conflictSpan, each attempt waits for conflictPause (§8.1).
	maxConflicts  = 15
	conflictSpan  = 10 * time.Second
	conflictPause = 5 * time.Second
	// maxLost lost ties in a row count as a conflict: a sender that probes for ever does not own
	// the name.
	maxLost = 8
)

type claim struct {
	state claimState
	step  int // probes or announcements sent
	lost  int // ties in a row
	due   time.Time
	// announced is when it was last announced, apart from answers.
	announced time.Time
}

// holds reports whether we answer for the names.
func (c claim) holds() bool { return c.state == announcing || c.state == held }

// begin claims the names on a link.
func (l *link) begin(now time.Time) {
	if l.m.port != 0 {
		l.claim = claim{state: probing, due: now.Add(l.m.between(0, probePause))}
	}
}

// reannounce announces what changed in records that are held.
func (l *link) reannounce(now time.Time) {
	if l.claim.holds() {
		l.claim = claim{state: announcing, due: now}
		for f := range l.answers {
			l.answers[f].waiting = nil // they contain the old records
		}
	}
}

func (l *link) pollClaim(now time.Time) {
	c := &l.claim
	for !c.due.IsZero() && !c.due.After(now) {
		switch {
		case c.state == probing && c.step < probes:
			l.probe(now)
			c.step++
			c.due = now.Add(probePause)
		case c.state == probing:
			*c = claim{state: announcing, due: now}
		case c.state == announcing:
			l.announce(now, l.m.self.ttl)
			c.announced = now
			c.due = now.Add(time.Second << c.step)
			if c.step++; c.step == announcements {
				c.state, c.due = held, time.Time{}
			}
		default:
			c.due = time.Time{}
		}
	}
}

// own returns the gateway's records on a link; only the first two are shared with others. Without
// a port there are none.
func (l *link) own() []dns.RR {
	m := l.m
	if m.port == 0 {
		return nil
	}
	name := instanceName(m.label)
	header := func(name string, rtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: rtype, Class: dns.ClassINET, Ttl: uint32(m.self.ttl / time.Second)}
	}
	unique := func(name string, rtype uint16) dns.RR_Header {
		h := header(name, rtype)
		h.Class |= topBit
		return h
	}
	t := text{key: m.self.key, overlay: overlay(m.self.key), capabilities: m.self.capabilities}
	if !m.self.secret.IsZero() {
		t.proof = Proof(m.self.secret, m.self.key, m.label)
	}
	out := []dns.RR{
		&dns.PTR{Hdr: header(serviceName, dns.TypePTR), Ptr: name},
		&dns.PTR{Hdr: header(enumerationName, dns.TypePTR), Ptr: serviceName},
		&dns.SRV{Hdr: unique(name, dns.TypeSRV), Port: m.port, Target: m.host},
		&dns.TXT{Hdr: unique(name, dns.TypeTXT), Txt: t.strings()},
	}
	for _, a := range l.iface.announceable() {
		if a.Is4() {
			out = append(out, &dns.A{Hdr: unique(m.host, dns.TypeA), A: a.AsSlice()})
		} else {
			out = append(out, &dns.AAAA{Hdr: unique(m.host, dns.TypeAAAA), AAAA: a.AsSlice()})
		}
	}
	return out
}

// uniques returns our records that nobody else may have.
func (l *link) uniques() []dns.RR {
	return slices.DeleteFunc(l.own(), func(rr dns.RR) bool { return !flushes(rr) })
}

// probe asks whether someone has the names already. It does not ask for unicast answers: they
// would go to whichever program on this host has the port for itself.
func (l *link) probe(now time.Time) {
	msg := new(dns.Msg)
	for _, name := range []string{instanceName(l.m.label), l.m.host} {
		msg.Question = append(msg.Question, dns.Question{Name: name, Qtype: dns.TypeANY, Qclass: dns.ClassINET})
	}
	for _, rr := range l.uniques() {
		rr.Header().Class &^= topBit // RFC 6762 §10.2
		msg.Ns = append(msg.Ns, rr)
	}
	l.multicast(now, anyFamily, msg)
}

// announce announces all records, or withdraws them (a ttl of 0).
func (l *link) announce(now time.Time, ttl time.Duration) {
	msg := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}}
	for _, rr := range l.own() {
		if ttl == 0 && fold(rr.Header().Name) == enumerationName {
			continue // it is shared with others
		}
		msg.Answer = append(msg.Answer, withTTL(rr, ttl))
	}
	l.multicast(now, anyFamily, msg)
	for f := range l.answers {
		l.answers[f].sent(now, msg.Answer)
	}
}

// contest checks whether others claim our names.
func (l *link) contest(now time.Time, records []dns.RR) {
	// What arrives before the first probe is no answer to it (RFC 6762 §8.1).
	if l.claim.state == unclaimed || l.claim.state == probing && l.claim.step == 0 {
		return
	}
	ours := l.uniques()
	var instance, host bool
	for _, rr := range records {
		name := fold(rr.Header().Name)
		isInstance, isHost := name == fold(instanceName(l.m.label)), name == fold(l.m.host)
		if !isIN(rr) || !isInstance && !isHost {
			continue
		}
		mine := slices.ContainsFunc(ours, func(o dns.RR) bool { return sameRecord(o, rr) })
		switch {
		case rr.Header().Ttl == 0:
			// Someone withdraws our record. We announce it again, but at a limited rate.
			if mine && l.claim.state == held && now.Sub(l.claim.announced) > time.Second {
				l.reannounce(now)
			}
		case !mine && rr.Header().Rrtype != dns.TypeNSEC:
			instance, host = instance || isInstance, host || isHost
		}
	}
	if instance || host {
		l.m.conflict(now, l, instance, host)
	}
}

// conflict gives way. A held name is probed for again, and its owner will answer (RFC 6762 §9). A
// name that was only probed for is taken, and gets replaced on all links.
func (m *machine) conflict(now time.Time, l *link, instance, host bool) {
	m.conflicts = slices.DeleteFunc(m.conflicts, func(at time.Time) bool { return now.Sub(at) >= conflictSpan })
	m.conflicts = append(m.conflicts, now)
	pause := m.between(0, probePause)
	if len(m.conflicts) >= maxConflicts {
		pause = conflictPause
		m.conflicts = m.conflicts[len(m.conflicts)-maxConflicts:]
	}
	if l.claim.holds() {
		l.claim = claim{state: probing, due: now.Add(pause)}
		return
	}
	if instance {
		m.number++
		m.label = numbered(m.self.name, m.number)
		m.renamed = m.label
	}
	if host {
		m.hosts++
		m.nameHost()
	}
	for _, other := range m.sorted() {
		other.claim = claim{state: probing, due: now.Add(pause)}
	}
}

// tie compares our probe with a simultaneous one of another host. The later of the two sets of
// records wins (RFC 6762 §8.2), and the loser waits.
func (l *link) tie(now time.Time, theirs []dns.RR) {
	if l.claim.state != probing {
		return
	}
	for _, name := range []string{fold(instanceName(l.m.label)), fold(l.m.host)} {
		of := func(rr dns.RR) bool { return !isIN(rr) || fold(rr.Header().Name) != name }
		other := slices.DeleteFunc(slices.Clone(theirs), of)
		if len(other) == 0 || compareSets(slices.DeleteFunc(l.uniques(), of), other) >= 0 {
			continue
		}
		if l.claim.lost++; l.claim.lost >= maxLost {
			l.m.conflict(now, l, name != fold(l.m.host), name == fold(l.m.host))
			return
		}
		l.claim.step, l.claim.due = 0, now.Add(deferPause)
		return
	}
}

// compareSets compares sets of records by type and data, in the order of the records (RFC 6762
// §8.2.1). The class is always the internet's.
func compareSets(a, b []dns.RR) int {
	return slices.CompareFunc(inOrder(a), inOrder(b), compareRecords)
}

func inOrder(set []dns.RR) []dns.RR {
	set = slices.Clone(set)
	slices.SortFunc(set, compareRecords)
	return set
}

func compareRecords(a, b dns.RR) int {
	if x, y := a.Header().Rrtype, b.Header().Rrtype; x != y {
		return int(x) - int(y)
	}
	return bytes.Compare(wire(a), wire(b))
}
