package lan

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// Answers that others may have, too, are delayed, so that not all hosts send at once (RFC
	// 6762 §6), and longer if known answers are still to come (§7.2).
	sharedLow, sharedHigh = 20 * time.Millisecond, 120 * time.Millisecond
	moreLow, moreHigh     = 400 * time.Millisecond, 500 * time.Millisecond
	// A record is sent to the group at most this often (§6), except to defend it against a probe.
	repeatPause  = time.Second
	defencePause = 250 * time.Millisecond
	// legacyTTL limits the TTL of records in answers to plain resolvers (§6.7).
	legacyTTL = 10 * time.Second
	// maxWaiting limits the pending answers of a link.
	maxWaiting = 64
)

func overlay(k peer.PublicKey) netip.Addr { return peer.OverlayAddr(k) }

// answers are the pending answers to the group on a link, in one family.
type answers struct {
	waiting []answer
	// at is when each of our records was last sent to the group.
	at map[string]time.Time
}

type answer struct {
	due     time.Time
	from    netip.AddrPort // who asked
	records []dns.RR
	defence bool
}

func (a *answers) due() time.Time {
	var next time.Time
	for _, w := range a.waiting {
		next = earlier(next, w.due)
	}
	return next
}

func (a *answers) sent(now time.Time, records []dns.RR) {
	if a.at == nil || len(a.at) > maxRecords {
		a.at = map[string]time.Time{}
	}
	for _, rr := range records {
		a.at[recordID(rr)] = now
	}
}

// sentWithin reports whether a record was sent to the group recently.
func (a *answers) sentWithin(now time.Time, rr dns.RR, d time.Duration) bool {
	at, ever := a.at[recordID(rr)]
	return ever && now.Sub(at) < d
}

func recordID(rr dns.RR) string {
	k := keyOf(rr)
	return k.name + " " + dns.TypeToString[k.rtype] + " " + value(rr)
}

// query handles another's question: answers it, and notes the asker's known answers.
func (l *link) query(now time.Time, f Family, msg *dns.Msg, from netip.AddrPort) {
	if len(msg.Ns) > 0 {
		l.tie(now, msg.Ns)
	}
	l.browser.overheard(now, msg)
	if !l.claim.holds() {
		return
	}
	if len(msg.Question) == 0 { // known answers that follow a question (RFC 6762 §7.2)
		l.answers[f].drop(from, msg.Answer)
		return
	}
	unicast, multicast := l.reply(now, f, msg, from.Port() != mdnsPort)
	if from.Port() != mdnsPort {
		l.replyLegacy(now, f, msg, unicast, from)
		return
	}
	if len(unicast) > 0 && l.alone.AllowN(now, 1) {
		l.unicast(f, &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: unicast, Extra: l.extra(unicast)}, from)
	}
	a := &l.answers[f]
	if len(multicast) == 0 || len(a.waiting) >= maxWaiting {
		return
	}
	w := answer{due: now, from: from, records: multicast, defence: len(msg.Ns) > 0}
	switch {
	case w.defence: // at once, since the other claims the name in a moment
	case msg.Truncated:
		w.due = now.Add(l.m.between(moreLow, moreHigh))
	case slices.ContainsFunc(multicast, func(rr dns.RR) bool { return !flushes(rr) }):
		w.due = now.Add(l.m.between(sharedLow, sharedHigh))
	}
	a.waiting = append(a.waiting, w)
}

// reply selects our records that a message asks for and that the asker does not know, each once.
// Those that the asker wants by unicast go only to the asker, unless they were not sent to the
// group for a quarter of their TTL (RFC 6762 §5.4).
func (l *link) reply(now time.Time, f Family, msg *dns.Msg, legacy bool) (unicast, multicast []dns.RR) {
	own := l.own()
	for _, q := range msg.Question {
		if class := q.Qclass &^ topBit; class != dns.ClassINET && class != dns.ClassANY {
			continue
		}
		for _, rr := range l.matching(own, q) {
			alone := legacy || q.Qclass&topBit != 0 && l.answers[f].sentWithin(now, rr, l.m.self.ttl/4)
			list := &multicast
			if alone {
				list = &unicast
			}
			if !known(msg.Answer, rr) && !contains(*list, rr) {
				*list = append(*list, rr)
			}
		}
	}
	return unicast, multicast
}

// matching returns the records that answer a question. For a name that is only ours and a type
// that it does not have, that is the list of its types (RFC 6762 §6.1).
func (l *link) matching(own []dns.RR, q dns.Question) []dns.RR {
	var out []dns.RR
	var has []uint16
	name := fold(q.Name)
	for _, rr := range own {
		h := rr.Header()
		if fold(h.Name) != name {
			continue
		}
		if h.Rrtype == q.Qtype || q.Qtype == dns.TypeANY {
			out = append(out, rr)
		}
		if flushes(rr) && !slices.Contains(has, h.Rrtype) {
			has = append(has, h.Rrtype)
		}
	}
	if len(out) > 0 || name != fold(instanceName(l.m.label)) && name != fold(l.m.host) {
		return out
	}
	if name == fold(l.m.host) {
		return []dns.RR{l.nsec(l.m.host, has)}
	}
	return []dns.RR{l.nsec(instanceName(l.m.label), has)}
}

// nsec lists a name's types, in the restricted form of RFC 6762 §6.1.
func (l *link) nsec(name string, types []uint16) dns.RR {
	slices.Sort(types)
	return &dns.NSEC{
		Hdr: dns.RR_Header{
			Name: name, Rrtype: dns.TypeNSEC, Class: dns.ClassINET | topBit, Ttl: uint32(l.m.self.ttl / time.Second),
		},
		NextDomain: name, TypeBitMap: types,
	}
}

// extra returns the records that the recipients of got will ask for next (RFC 6763 §12).
func (l *link) extra(got []dns.RR) []dns.RR {
	var out []dns.RR
	add := func(want func(*dns.RR_Header) bool) {
		for _, rr := range l.own() {
			if want(rr.Header()) && !contains(got, rr) && !contains(out, rr) {
				out = append(out, rr)
			}
		}
	}
	for _, rr := range got {
		switch r := rr.(type) {
		case *dns.PTR:
			if fold(r.Hdr.Name) == serviceName {
				add(func(h *dns.RR_Header) bool { return flushesClass(h.Class) })
			}
		case *dns.SRV:
			add(func(h *dns.RR_Header) bool { return fold(h.Name) == fold(l.m.host) })
		case *dns.A, *dns.AAAA:
			add(func(h *dns.RR_Header) bool { return fold(h.Name) == fold(l.m.host) })
		}
	}
	return out
}

func flushesClass(class uint16) bool { return class&topBit != 0 }

// replyLegacy answers a plain resolver in conventional DNS: to its port, with its id and
// question, without bits that it does not know (RFC 6762 §6.7).
func (l *link) replyLegacy(now time.Time, f Family, query *dns.Msg, records []dns.RR, to netip.AddrPort) {
	if len(records) == 0 || !l.alone.AllowN(now, 1) {
		return
	}
	msg := &dns.Msg{MsgHdr: dns.MsgHdr{Id: query.Id, Response: true, Authoritative: true, RecursionDesired: query.RecursionDesired},
		Question: query.Question}
	plain := func(rr dns.RR) dns.RR {
		c := withTTL(rr, min(l.m.self.ttl, legacyTTL))
		c.Header().Class &^= topBit
		return c
	}
	for _, rr := range records {
		msg.Answer = append(msg.Answer, plain(rr))
	}
	for _, rr := range l.extra(records) {
		msg.Extra = append(msg.Extra, plain(rr))
	}
	l.unicast(f, msg, to)
}

func (l *link) unicast(f Family, msg *dns.Msg, to netip.AddrPort) {
	if data := pack(msg); data != nil && l.open[f] {
		l.m.out = append(l.m.out, datagram{link: l.iface.Index, name: l.iface.Name, family: f, to: to, data: data})
	}
}

// pollAnswers sends what is due to the group in one message.
func (l *link) pollAnswers(now time.Time, f Family) {
	a := &l.answers[f]
	var due []dns.RR
	a.waiting = slices.DeleteFunc(a.waiting, func(w answer) bool {
		if w.due.After(now) {
			return false
		}
		pause := repeatPause
		if w.defence {
			pause = defencePause
		}
		for _, rr := range w.records {
			if !contains(due, rr) && !a.sentWithin(now, rr, pause) {
				due = append(due, rr)
			}
		}
		return true
	})
	// If the claim was lost after the question, we must not answer any more.
	if len(due) == 0 || !l.claim.holds() || !l.group.AllowN(now, 1) {
		return
	}
	msg := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: due}
	for _, rr := range l.extra(due) {
		if !a.sentWithin(now, rr, repeatPause) {
			msg.Extra = append(msg.Extra, rr)
		}
	}
	l.multicast(now, f, msg)
	a.sent(now, slices.Concat(msg.Answer, msg.Extra))
}

// drop removes what an asker already knows from its pending answers.
func (a *answers) drop(from netip.AddrPort, knows []dns.RR) {
	for i := range a.waiting {
		if w := &a.waiting[i]; w.from == from && !w.defence {
			w.records = slices.DeleteFunc(w.records, func(rr dns.RR) bool { return known(knows, rr) })
		}
	}
}

// known reports whether an asker has a record, with at least half of its TTL left (RFC 6762
// §7.1).
func known(answers []dns.RR, rr dns.RR) bool {
	return slices.ContainsFunc(answers, func(k dns.RR) bool {
		return isIN(k) && k.Header().Ttl >= rr.Header().Ttl/2 && sameRecord(k, rr)
	})
}

func contains(list []dns.RR, rr dns.RR) bool {
	return slices.ContainsFunc(list, func(o dns.RR) bool { return sameRecord(o, rr) })
}
