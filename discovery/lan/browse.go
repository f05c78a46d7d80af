package lan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/foreign"
)

const (
	// The question for all instances is asked after 20 to 120 ms, then after 1 s, 2 s, 4 s and so
	// on up to an hour (RFC 6762 §5.2). Known records are refreshed by their TTL.
	firstQuery   = time.Second
	longestQuery = time.Hour
	// Missing records of an instance are queried after resolveWait, since most responders send
	// them together, and at 1, 2, 4 s; then when the instance is heard again.
	resolveWait = 50 * time.Millisecond
	maxResolves = 4
	// maxAsked limits the questions of one message.
	maxAsked = 16
	// quiet is when questions beyond the rate limit are tried again.
	quiet = time.Second
)

// browser finds instances on a link.
type browser struct {
	cache cache
	next  time.Time // of the question for all instances
	pause time.Duration
	held  time.Time // no question is sent before
}

// start asks for all instances again.
func (b *browser) start(now time.Time, random float64) {
	b.next = now.Add(sharedLow + time.Duration(random*float64(sharedHigh-sharedLow)))
	b.pause = firstQuery
}

// due returns when there is something to ask or to forget.
func (b *browser) due() time.Time {
	next := b.next
	for _, list := range b.cache.records {
		for _, r := range list {
			next = earlier(earlier(next, r.refresh), r.expires)
		}
	}
	for _, i := range b.cache.instances {
		next = earlier(next, i.due)
	}
	if b.held.After(next) {
		return b.held
	}
	return next
}

func (b *browser) poll(now time.Time, l *link) {
	if b.cache.expire(now) {
		l.m.dirty = true
		if b.cache.full { // a refused instance may still be there
			b.cache.full = false
			b.start(now, l.m.random())
		}
	}
	if b.held.After(now) {
		return
	}
	questions := b.questions(now, l.m)
	for chunk := range slices.Chunk(questions, maxAsked) {
		if !l.asking.AllowN(now, 1) {
			b.held = now.Add(quiet)
			return
		}
		for _, msg := range b.messages(now, chunk) {
			l.multicast(now, anyFamily, msg)
		}
	}
}

// questions returns those that are due. They do not ask for unicast answers: see probe.
func (b *browser) questions(now time.Time, m *machine) []recordKey {
	var out []recordKey
	ask := func(name string, rtype uint16) {
		if k := (recordKey{name, rtype}); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if !b.next.After(now) {
		ask(serviceName, dns.TypePTR)
		b.asked(now)
	}
	random := m.random()
	for k, list := range b.cache.records {
		for _, r := range list {
			if !r.refresh.IsZero() && !r.refresh.After(now) {
				r.asked++
				r.plan(random)
				ask(k.name, k.rtype)
			}
		}
	}
	for name, i := range b.cache.instances {
		if i.due.IsZero() || i.due.After(now) {
			continue
		}
		missing := b.missing(now, name)
		for _, k := range missing {
			ask(k.name, k.rtype)
		}
		i.asks++
		i.due = now.Add(time.Second << (i.asks - 1))
		if len(missing) == 0 || i.asks >= maxResolves {
			i.due = time.Time{}
		}
	}
	slices.SortFunc(out, func(a, b recordKey) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.rtype, b.rtype)) })
	return out
}

// asked schedules the next question for all instances.
func (b *browser) asked(now time.Time) {
	b.next = now.Add(b.pause)
	b.pause = min(2*b.pause, longestQuery)
}

// missing returns which records of an instance are not known.
func (b *browser) missing(now time.Time, name string) []recordKey {
	var out []recordKey
	if len(b.cache.live(now, name, dns.TypeTXT)) == 0 {
		out = append(out, recordKey{name, dns.TypeTXT})
	}
	services := b.cache.live(now, name, dns.TypeSRV)
	if len(services) == 0 {
		return append(out, recordKey{name, dns.TypeSRV})
	}
	srv, ok := services[0].rr.(*dns.SRV)
	if !ok {
		return out
	}
	host := fold(srv.Target)
	if len(b.cache.live(now, host, dns.TypeA))+len(b.cache.live(now, host, dns.TypeAAAA)) == 0 {
		out = append(out, recordKey{host, dns.TypeA}, recordKey{host, dns.TypeAAAA})
	}
	return out
}

// messages returns the questions with the known answers, in as many messages as that takes. All
// but the last say that more follow (RFC 6762 §7.2).
func (b *browser) messages(now time.Time, questions []recordKey) []*dns.Msg {
	msg := new(dns.Msg)
	out := []*dns.Msg{msg}
	for _, k := range questions {
		msg.Question = append(msg.Question, dns.Question{Name: k.name, Qtype: k.rtype, Qclass: dns.ClassINET})
	}
	if !slices.Contains(questions, recordKey{serviceName, dns.TypePTR}) {
		return out
	}
	size := msg.Len()
	for _, r := range b.cache.live(now, serviceName, dns.TypePTR) {
		left := r.expires.Sub(now)
		if left <= r.ttl/2 { // RFC 6762 §7.1
			continue
		}
		rr := withTTL(r.rr, left)
		rr.Header().Class &^= topBit
		if size += dns.Len(rr); size > maxSend {
			msg.Truncated = true
			msg = new(dns.Msg)
			out = append(out, msg)
			size = msg.Len() + dns.Len(rr)
		}
		msg.Answer = append(msg.Answer, rr)
	}
	return out
}

// overheard lets another's question for all instances replace our own, if ours is due soon and
// the answers will include all that we do not know (RFC 6762 §7.3).
func (b *browser) overheard(now time.Time, msg *dns.Msg) {
	if b.next.Sub(now) > firstQuery || msg.Truncated || len(msg.Ns) > 0 {
		return
	}
	asks := slices.ContainsFunc(msg.Question, func(q dns.Question) bool {
		return q.Qclass == dns.ClassINET && q.Qtype == dns.TypePTR && fold(q.Name) == serviceName
	})
	if !asks {
		return
	}
	for _, rr := range msg.Answer {
		here := slices.ContainsFunc(b.cache.live(now, serviceName, dns.TypePTR), func(r *cached) bool {
			return sameRecord(r.rr, rr) && r.expires.Sub(now) > r.ttl/2
		})
		if !here {
			return
		}
	}
	b.asked(now)
}

// found returns the instances that are known completely, without this gateway.
func (m *machine) found(now time.Time) []Instance {
	var out []Instance
	for _, l := range m.sorted() {
		named := l.browser.cache.named()
		for name, i := range l.browser.cache.instances {
			x, ok := l.instance(now, name, i, named[name])
			if ok && x.PublicKey != m.self.key {
				out = append(out, x)
			}
		}
	}
	slices.SortFunc(out, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Name.RawUnsafe(), b.Name.RawUnsafe()), cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.PublicKey.String(), b.PublicKey.String()))
	})
	return out
}

// instance returns what is known about an instance; false if that is not enough.
func (l *link) instance(now time.Time, name string, i *instance, ptr *cached) (Instance, bool) {
	c := &l.browser.cache
	services, texts := c.live(now, name, dns.TypeSRV), c.live(now, name, dns.TypeTXT)
	if ptr == nil || !ptr.expires.After(now) || len(services) == 0 || len(texts) == 0 {
		return Instance{}, false
	}
	// Of several the latest counts: the others are about to expire.
	latest := func(list []*cached) *cached {
		return slices.MaxFunc(list, func(a, b *cached) int { return a.received.Compare(b.received) })
	}
	s, t := latest(services), latest(texts)
	srv, isSRV := s.rr.(*dns.SRV)
	txt, isTXT := t.rr.(*dns.TXT)
	if !isSRV || !isTXT {
		return Instance{}, false
	}
	x := Instance{Name: foreign.Of(i.label), Interface: l.iface.Name, FirstSeen: i.first, Expires: ptr.expires}
	seen := []*cached{ptr, s, t}
	for _, rtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		for _, r := range c.live(now, srv.Target, rtype) {
			seen = append(seen, r)
			if a := address(r.rr); l.iface.onLink(a) && a.IsGlobalUnicast() && srv.Port != 0 {
				x.Addresses = append(x.Addresses, netip.AddrPortFrom(a, srv.Port))
			}
		}
	}
	slices.SortFunc(x.Addresses, netip.AddrPort.Compare)
	for _, r := range seen {
		x.LastSeen = later(x.LastSeen, r.received)
	}
	x.Expires = earlier(earlier(x.Expires, s.expires), t.expires)
	said, err := parseText(txt.Txt)
	if err != nil {
		x.Err = foreign.Of(err.Error())
		return x, true
	}
	x.PublicKey, x.Overlay, x.Capabilities = said.key, said.overlay, said.capabilities
	x.Member = said.proves(l.m.self.secret, i.label)
	switch {
	case srv.Port == 0:
		x.Err = foreign.Of("its SRV record has no port")
	case len(x.Addresses) == 0 && len(seen) == 3:
		x.Err = foreign.Of("it has no address")
	case len(x.Addresses) == 0:
		x.Err = foreign.Of("none of its addresses is of a network of " + l.iface.Name)
	}
	return x, true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
