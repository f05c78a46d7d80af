package dnssd

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Limits on what is accepted from a zone.
const (
	maxInstances = 64
	maxWays      = 16 // SRV records of an instance
	maxTexts     = 4  // TXT records of an instance
	maxPerFamily = 8  // addresses of a host
	maxAddresses = 16 // of an instance
)

// tally collects the results of the lookups for one thing.
type tally struct {
	m         *machine
	now       time.Time
	pending   bool // some question was neither answered nor given up
	validated bool
	seenAt    time.Time // the oldest answer; zero = none yet
	problems  []Problem
}

// complain adds a problem. That no server answers is added only once.
func (t *tally) complain(kind Kind, record, what string) {
	again := func(p Problem) bool {
		return p.Kind == kind && (kind == Unanswered || kind == Forged || p.Record.RawUnsafe() == record && p.What.RawUnsafe() == what)
	}
	if !slices.ContainsFunc(t.problems, again) {
		t.problems = append(t.problems, Problem{kind, foreign.Of(record), foreign.Of(what)})
	}
}

// lookup returns the records of a name, or of the target of its aliases. known is false while
// they are unknown.
func (t *tally) lookup(q question) (a answer, known bool) {
	seen := []string{q.name}
	for {
		e := t.m.entry(t.now, question{seen[len(seen)-1], q.rtype})
		if e == nil {
			return answer{}, false
		}
		t.failed(q, e)
		if !e.known {
			t.pending = t.pending || e.err == nil
			return answer{}, false
		}
		t.validated = t.validated && e.answer.validated
		if t.seenAt.IsZero() || e.at.Before(t.seenAt) {
			t.seenAt = e.at
		}
		alias := e.answer.alias
		if alias == "" {
			return e.answer, true
		}
		if slices.Contains(seen, alias) || len(seen) > maxAliases {
			t.complain(Bad, q.String(), "cannot be followed: "+aliasError{q, append(seen, alias)}.Error())
			return answer{}, false
		}
		seen = append(seen, alias)
	}
}

// failed adds why the last query of a record set failed.
func (t *tally) failed(q question, e *entry) {
	holds := ""
	if e.known {
		holds = "; the last good answer holds"
	}
	switch {
	case e.err == nil:
	case errors.As(e.err, new(aliasError)):
		t.complain(Bad, q.String(), "cannot be followed: "+e.err.Error())
	case errors.Is(e.err, errBogus):
		t.complain(Forged, q.String(), fmt.Sprintf("is not believed: %v%s", e.err, holds))
	default:
		t.complain(Unanswered, q.String(), fmt.Sprintf("is not answered: %v%s", e.err, holds))
	}
}

// dnssec combines what the resolver says about all lookups.
func (t *tally) dnssec() DNSSEC {
	switch {
	case slices.ContainsFunc(t.problems, func(p Problem) bool { return p.Kind == Forged }):
		return Bogus
	case t.validated && !t.seenAt.IsZero():
		return Validated
	}
	return NotValidated
}

// survey combines what is known about the domain. It is complete once every question was answered
// or given up.
func (m *machine) survey(now time.Time) (d Domain, complete bool) {
	d.Name = shown(m.domain)
	t := &tally{m: m, now: now, validated: true}
	q := question{service + m.domain, dns.TypePTR}
	a, known := t.lookup(q)
	if known && len(a.records) == 0 {
		t.complain(Nothing, q.String(), "does not exist: no gateway is announced there")
	}
	complete = !t.pending
	for _, name := range t.instances(q, a.records) {
		of := &tally{m: m, now: now, validated: t.validated, seenAt: t.seenAt}
		i := of.instance(name)
		complete = complete && !of.pending
		d.Instances = append(d.Instances, i)
	}
	if m.full {
		t.complain(Bad, q.String(), fmt.Sprintf("leads to more than %d record sets; the rest is left out", maxQuestions))
	}
	slices.SortFunc(d.Instances, func(a, b Instance) int {
		return cmp.Or(strings.Compare(a.Name.RawUnsafe(), b.Name.RawUnsafe()), strings.Compare(a.Record, b.Record))
	})
	d.Looked, d.Problems, d.DNSSEC = t.seenAt, t.problems, t.dnssec()
	return d, complete
}

// instances returns the full names in PTR records, in a stable order.
func (t *tally) instances(q question, records []dns.RR) []string {
	var out []string
	for _, rr := range records {
		ptr, is := rr.(*dns.PTR)
		if !is {
			continue
		}
		name := fold(ptr.Ptr)
		if _, ok := instanceLabel(name); !ok {
			t.complain(Bad, q.String(), fmt.Sprintf("leads to %.255q, which is no instance of this service (want NAME.%sDOMAIN)", shown(name), service))
			continue
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	if n := len(out); n > maxInstances {
		t.complain(Bad, q.String(), fmt.Sprintf("leads to %d gateways; the first %d by name are looked at", n, maxInstances))
		out = out[:maxInstances]
	}
	return out
}

// instance looks up one gateway.
func (t *tally) instance(name string) Instance {
	label, _ := instanceLabel(name)
	i := Instance{Name: foreign.Of(label), Record: shown(name)}
	key := t.text(question{name, dns.TypeTXT})
	i.Key, i.Capabilities = key.key, key.capabilities
	i.Addresses = t.ways(question{name, dns.TypeSRV})
	i.Problems, i.DNSSEC, i.SeenAt = t.problems, t.dnssec(), t.seenAt
	slices.SortStableFunc(i.Problems, func(a, b Problem) int { return int(b.Kind) - int(a.Kind) })
	return i
}

// text reads the TXT records. One readable record is enough, unless another has a different key.
func (t *tally) text(q question) text {
	a, known := t.lookup(q)
	if !known {
		return text{}
	}
	if len(a.records) == 0 {
		t.complain(Bad, q.String(), "does not exist: nothing says what the gateway's public key is")
		return text{}
	}
	var good []text
	var bad []string
	for n, rr := range a.records {
		txt, is := rr.(*dns.TXT)
		if !is {
			continue
		}
		if n >= maxTexts {
			t.complain(Bad, q.String(), fmt.Sprintf("are %d records; %d are looked at", len(a.records), maxTexts))
			break
		}
		got, err := parseText(txt.Txt)
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		if len(good) > 0 && good[0].key != got.key {
			t.complain(Bad, q.String(), "are several records with different public keys, and which one counts cannot be told")
			return text{}
		}
		good = append(good, got)
	}
	if len(good) == 0 {
		for _, why := range bad {
			t.complain(Bad, q.String(), why)
		}
		return text{}
	}
	return good[0]
}

// ways follows the SRV records.
func (t *tally) ways(q question) []Address {
	a, known := t.lookup(q)
	if !known {
		return nil
	}
	var records []*dns.SRV
	for _, rr := range a.records {
		if srv, is := rr.(*dns.SRV); is {
			records = append(records, srv)
		}
	}
	if len(records) == 0 {
		t.complain(Bad, q.String(), "does not exist: nothing says where the gateway is")
		return nil
	}
	records = arrange(t.m.seed, q.name, records)
	if n := len(records); n > maxWays {
		t.complain(Bad, q.String(), fmt.Sprintf("are %d records; the first %d are looked at", n, maxWays))
		records = records[:maxWays]
	}
	var out []Address
	var order uint8
	for _, srv := range records {
		found := t.way(q, srv)
		for _, addr := range found {
			again := func(o Address) bool { return o.Addr == addr }
			if len(out) < maxAddresses && !slices.ContainsFunc(out, again) {
				out = append(out, Address{addr, order, srv.Priority, srv.Weight, shown(fold(srv.Target))})
			}
		}
		if len(found) > 0 {
			order++
		}
	}
	return out
}

// way returns the addresses of one SRV record that may be dialled, IPv6 before IPv4 as in RFC
// 6724.
func (t *tally) way(q question, srv *dns.SRV) []netip.AddrPort {
	target := fold(srv.Target)
	switch {
	case target == ".":
		t.complain(Bad, q.String(), `has the target ".", which says that the service is not to be had there`)
		return nil
	case srv.Port == 0:
		t.complain(Bad, q.String(), "has port 0, and wants the UDP port of the gateway")
		return nil
	}
	if a, err := netip.ParseAddr(shown(target)); err == nil {
		t.complain(Bad, q.String(), fmt.Sprintf("has the address %s for a target, where the name of a host has to be", a))
		return nil
	}
	v6, known6 := t.lookup(question{target, dns.TypeAAAA})
	v4, known4 := t.lookup(question{target, dns.TypeA})
	var out []netip.AddrPort
	for _, a := range slices.Concat(t.addrs(q, target, v6), t.addrs(q, target, v4)) {
		to := netip.AddrPortFrom(a, srv.Port)
		if why := t.m.refuse(to); why != "" {
			t.complain(Bad, q.String(), fmt.Sprintf("leads to %s at %v, which is not dialled: %s", shown(target), to, why))
			continue
		}
		out = append(out, to)
	}
	if known4 && known6 && len(v4.records)+len(v6.records) == 0 {
		what := "has neither an A nor an AAAA record"
		if v4.missing && v6.missing {
			what = "does not exist"
		}
		t.complain(Bad, q.String(), fmt.Sprintf("leads to %s, which %s", shown(target), what))
	}
	return out
}

// addrs returns a host's addresses of one family.
func (t *tally) addrs(q question, target string, a answer) []netip.Addr {
	var out []netip.Addr
	for _, rr := range a.records {
		var addr netip.Addr
		switch r := rr.(type) {
		case *dns.A:
			addr, _ = netip.AddrFromSlice(r.A.To4())
		case *dns.AAAA:
			addr, _ = netip.AddrFromSlice(r.AAAA)
		}
		if addr = addr.Unmap(); addr.IsValid() && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	if n := len(out); n > maxPerFamily {
		t.complain(Bad, q.String(), fmt.Sprintf("leads to %s, which has %d addresses of a family; the first %d are used", shown(target), n, maxPerFamily))
		out = out[:maxPerFamily]
	}
	return out
}

// equal compares the content of domains without the times.
func (d Domain) equal(o Domain) bool {
	return slices.EqualFunc(d.Instances, o.Instances, Instance.equal) && slices.Equal(d.Problems, o.Problems) &&
		d.DNSSEC == o.DNSSEC && d.Looked.IsZero() == o.Looked.IsZero()
}

func (i Instance) equal(o Instance) bool {
	return i.Record == o.Record && i.Key == o.Key && i.DNSSEC == o.DNSSEC && slices.Equal(i.Capabilities, o.Capabilities) &&
		slices.Equal(i.Addresses, o.Addresses) && slices.Equal(i.Problems, o.Problems)
}
