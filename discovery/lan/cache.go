package lan

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxInstances limits what is stored for a link, maxPerSender for one sender: a host may run
	// several gateways, and a reflector brings those of another network.
	maxInstances = 256
	maxPerSender = 32
	// maxAlternatives limits the SRV and TXT records of an instance. There should be one.
	maxAlternatives = 4
	// maxText limits the memory of a TXT record's strings, in bytes: perString for each and what the
	// dns package makes of its bytes, four of one that is not ASCII. The 1300 bytes that RFC 6763
	// §6.2 allows fit if they are ASCII, the 400 that it prefers always. Other records are small.
	maxText   = 2048
	perString = 16
	// flushWait is how long records stay after newer ones replace them or they were withdrawn
	// (RFC 6762 §10.1, §10.2): others have a second to repeat them.
	flushWait = time.Second
	// Records are refreshed at these points of their life (§5.2), in percent, each up to
	// refreshSpread later.
	firstRefresh, refreshStep, refreshes = 80, 5, 4
	refreshSpread                        = 2
)

// cached is a record that someone announced.
type cached struct {
	rr       dns.RR
	value    string // of rr, for comparison
	from     netip.Addr
	received time.Time
	expires  time.Time
	ttl      time.Duration
	asked    int       // refreshes that were due so far
	refresh  time.Time // of the next; zero = none
}

// plan schedules the next refresh.
func (c *cached) plan(random float64) {
	c.refresh = time.Time{}
	if c.asked < refreshes {
		percent := float64(firstRefresh+refreshStep*c.asked) + random*refreshSpread
		c.refresh = c.received.Add(time.Duration(float64(c.ttl) * percent / 100))
	}
}

// instance is an instance that was announced on a link.
type instance struct {
	label string
	first time.Time
	// asks and due belong to the questions for its missing records.
	asks int
	due  time.Time
}

// cache contains the records of a link that matter: which instances there are, what they say,
// where they are.
type cache struct {
	records map[recordKey][]*cached
	// instances are those that PTR records name, by full name in the form in which names are
	// compared.
	instances map[string]*instance
	full      bool // an instance was refused because the cache is full
}

// live returns the unexpired records of a name and type.
func (c *cache) live(now time.Time, name string, rtype uint16) []*cached {
	return slices.DeleteFunc(slices.Clone(c.records[recordKey{fold(name), rtype}]), func(r *cached) bool { return !r.expires.After(now) })
}

// targets returns the hosts of the instances.
func (c *cache) targets() map[string]bool {
	out := map[string]bool{}
	for k, list := range c.records {
		if k.rtype != dns.TypeSRV {
			continue
		}
		for _, r := range list {
			if srv, ok := r.rr.(*dns.SRV); ok {
				out[fold(srv.Target)] = true
			}
		}
	}
	return out
}

// room reports whether another record may be stored.
func (c *cache) room(now time.Time, k recordKey, from netip.Addr) bool {
	switch n := len(c.records[k]); k.rtype {
	case dns.TypePTR:
		return c.admit(now, k, from)
	case dns.TypeA, dns.TypeAAAA:
		return n < maxAddresses
	default:
		return n < maxAlternatives
	}
}

// admit makes room for an instance that a sender announces. If the cache is full, it evicts an
// instance whose records were never complete, or one of the sender with the most instances, if
// that has more than the newcomer's sender.
func (c *cache) admit(now time.Time, k recordKey, from netip.Addr) bool {
	count := map[netip.Addr]int{}
	var most netip.Addr
	for _, r := range c.records[k] {
		if count[r.from]++; count[r.from] > count[most] {
			most = r.from
		}
	}
	if count[from] >= maxPerSender {
		return false
	}
	if len(c.records[k]) < maxInstances {
		return true
	}
	i := slices.IndexFunc(c.records[k], func(r *cached) bool { return c.unanswered(now, r.value) })
	if i < 0 && count[most] > count[from]+1 {
		i = slices.IndexFunc(c.records[k], func(r *cached) bool { return r.from == most })
	}
	if i < 0 {
		c.full = true
		return false
	}
	c.records[k] = slices.Delete(c.records[k], i, i+1)
	c.dropUnreferenced()
	return true
}

// unanswered reports whether nobody answered for an instance.
func (c *cache) unanswered(now time.Time, name string) bool {
	i := c.instances[name]
	return i != nil && i.due.IsZero() && (len(c.live(now, name, dns.TypeSRV)) == 0 || len(c.live(now, name, dns.TypeTXT)) == 0)
}

// textSize returns the memory of a TXT record's strings, in bytes; 0 for other records.
func textSize(rr dns.RR) (size int) {
	if txt, ok := rr.(*dns.TXT); ok {
		for _, s := range txt.Txt {
			size += perString + len(s)
		}
	}
	return size
}

// put stores a record, and reports whether it changes anything.
func (c *cache) put(now time.Time, rr dns.RR, from netip.Addr, random float64) (news bool) {
	if textSize(rr) > maxText {
		return false
	}
	k, v, ttl := keyOf(rr), value(rr), ttlOf(rr)
	if flushes(rr) {
		for _, r := range c.records[k] {
			if now.Sub(r.received) > flushWait && r.value != v {
				c.end(now, r)
			}
		}
	}
	i := slices.IndexFunc(c.records[k], func(r *cached) bool { return r.value == v })
	if ttl == 0 {
		if i >= 0 {
			c.end(now, c.records[k][i])
		}
		return false
	}
	var r *cached
	switch {
	case i >= 0:
		r = c.records[k][i]
	case !c.room(now, k, from):
		return false
	default:
		r = &cached{value: v, from: from}
		if c.records == nil {
			c.records = map[recordKey][]*cached{}
		}
		c.records[k] = append(c.records[k], r)
		news = true
	}
	r.rr, r.received, r.ttl, r.expires, r.asked = rr, now, ttl, now.Add(ttl), 0
	r.plan(random)
	return news
}

// end makes a record expire in a second, unless it expires earlier.
func (c *cache) end(now time.Time, r *cached) {
	r.expires = earlier(r.expires, now.Add(flushWait))
	r.refresh = time.Time{}
}

// expire drops expired records and those that nothing refers to any more.
func (c *cache) expire(now time.Time) (changed bool) {
	for k := range c.records {
		changed = c.drop(k, func(r *cached) bool { return !r.expires.After(now) }) || changed
	}
	if changed {
		c.dropUnreferenced()
	}
	return changed
}

func (c *cache) drop(k recordKey, gone func(*cached) bool) (changed bool) {
	before := len(c.records[k])
	c.records[k] = slices.DeleteFunc(c.records[k], gone)
	after := len(c.records[k])
	if after == 0 {
		delete(c.records, k)
	}
	return after != before
}

// dropUnreferenced drops what nothing refers to: instances without a PTR record, their records, and
// hosts without instances.
func (c *cache) dropUnreferenced() {
	all := func(*cached) bool { return true }
	there := c.named()
	for name := range c.instances {
		if there[name] == nil {
			delete(c.instances, name)
		}
	}
	for k := range c.records {
		if (k.rtype == dns.TypeSRV || k.rtype == dns.TypeTXT) && there[k.name] == nil {
			c.drop(k, all)
		}
	}
	targets := c.targets()
	for k := range c.records {
		if (k.rtype == dns.TypeA || k.rtype == dns.TypeAAAA) && !targets[k.name] {
			c.drop(k, all)
		}
	}
}

// named returns the PTR records by the instance that they name.
func (c *cache) named() map[string]*cached {
	out := map[string]*cached{}
	for _, r := range c.records[recordKey{serviceName, dns.TypePTR}] {
		out[r.value] = r
	}
	return out
}

// learn stores a message's records that matter: first those that announce instances, then those
// of instances, then those of their hosts.
func (b *browser) learn(now time.Time, l *link, records []dns.RR, from netip.Addr) {
	c := &b.cache
	news := false
	// Records that arrived together are refreshed together.
	random := l.m.random()
	take := func(want func(dns.RR) bool) {
		for _, rr := range records {
			if !isIN(rr) || !want(rr) {
				continue
			}
			changed := c.put(now, rr, from, random)
			news = news || changed || rr.Header().Ttl == 0
		}
	}
	take(func(rr dns.RR) bool {
		ptr, ok := rr.(*dns.PTR)
		if !ok || fold(ptr.Hdr.Name) != serviceName {
			return false
		}
		_, ours := instanceLabel(ptr.Ptr)
		return ours
	})
	c.addInstances(now)
	take(func(rr dns.RR) bool {
		switch rr.(type) {
		case *dns.SRV, *dns.TXT:
			return c.instances[fold(rr.Header().Name)] != nil
		}
		return false
	})
	targets := c.targets()
	take(func(rr dns.RR) bool { return address(rr).IsValid() && targets[fold(rr.Header().Name)] })
	l.m.dirty = l.m.dirty || news
}

// addInstances adds the instances that PTR records name.
func (c *cache) addInstances(now time.Time) {
	for _, r := range c.records[recordKey{serviceName, dns.TypePTR}] {
		ptr, ok := r.rr.(*dns.PTR)
		if !ok {
			continue
		}
		name := fold(ptr.Ptr)
		if c.instances[name] == nil {
			label, _ := instanceLabel(ptr.Ptr)
			if c.instances == nil {
				c.instances = map[string]*instance{}
			}
			c.instances[name] = &instance{label: strings.ToValidUTF8(label, "\uFFFD"), first: now}
		}
		if r.received.Equal(now) { // just announced: its missing records are queried again
			c.instances[name].asks = 0
			c.instances[name].due = now.Add(resolveWait)
		}
	}
}
