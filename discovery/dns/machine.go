package dnssd

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// An unanswered question is repeated after retryFirst, then after twice as long each time, up
	// to retryMost.
	retryFirst, retryMost = 5 * time.Second, 5 * time.Minute
	// staleFor is how long the last known records stay in use while no server answers. RFC 8767
	// §5 recommends one to three days.
	staleFor = 24 * time.Hour
	// maxQuestions limits the record sets of a domain, and pace how often they are queried: ten
	// per second on average, however short a zone's TTLs.
	maxQuestions = 512
	pace         = 100 * time.Millisecond
	// idleWait is how long a machine sleeps that has no questions.
	idleWait = time.Minute
)

// entry is what is known about a record set.
type entry struct {
	known    bool // answer is valid
	answer   answer
	at       time.Time // of the answer
	due      time.Time // when to query it again, by its TTL
	urgent   bool      // to be queried at once, and again if a query is pending
	pending  bool
	failures int   // in a row
	err      error // why the last query failed; nil if it did not
	used     bool  // by the survey
	unsure   bool  // older than a change of other records, which it may not match
}

// machine browses one domain: answers and the time in, questions and the next deadline out. It
// has no clock and is not safe for concurrent use.
type machine struct {
	domain  string // folded
	seed    []byte
	refuse  func(netip.AddrPort) string
	entries map[question]*entry
	full    bool // there was no room for another entry
}

func newMachine(domain string, seed []byte, refuse func(netip.AddrPort) string) *machine {
	return &machine{domain: fold(domain), seed: seed, refuse: refuse, entries: map[question]*entry{}}
}

// poll returns the questions to ask now, and the latest time of the next poll, apart from
// answers. The domain is complete once every question was answered or given up.
func (m *machine) poll(now time.Time) (ask []question, next time.Time, d Domain, complete bool) {
	for _, e := range m.entries {
		e.used = false
	}
	m.full = false
	d, complete = m.survey(now)
	next = now.Add(idleWait)
	for q, e := range m.entries {
		switch {
		case e.pending:
		case !e.used:
			delete(m.entries, q)
		case !m.due(e).After(now):
			e.pending, e.urgent = true, false
			ask = append(ask, q)
		case m.due(e).Before(next):
			next = m.due(e)
		}
	}
	for _, e := range m.entries {
		complete = complete && (!e.used || !e.unsure)
	}
	slices.SortFunc(ask, question.compare)
	return ask, next, d, complete
}

// due returns when to query a record set again.
func (m *machine) due(e *entry) time.Time {
	if paced := e.at.Add(pace * time.Duration(len(m.entries))); !e.urgent && !e.at.IsZero() && paced.After(e.due) {
		return paced
	}
	return e.due
}

func (q question) compare(o question) int {
	if c := strings.Compare(q.name, o.name); c != 0 {
		return c
	}
	return int(q.rtype) - int(o.rtype)
}

// answered handles the result of a question.
func (m *machine) answered(now time.Time, q question, a answer, err error) {
	e := m.entries[q]
	if e == nil {
		return
	}
	e.pending, e.unsure = false, e.unsure && e.urgent
	defer func() {
		if e.urgent { // this answer is to an earlier query
			e.due = now
		}
	}()
	if err != nil && !errors.As(err, new(aliasError)) {
		e.err = err
		e.due = now.Add(min(retryFirst<<min(e.failures, 10), retryMost))
		e.failures++
		if e.known && now.Sub(e.at) > staleFor {
			e.known, e.answer = false, answer{}
		}
		return
	}
	if e.err = err; err != nil {
		a = answer{ttl: negativeTTL}
	}
	if e.known && !e.answer.same(a) && q.rtype != dns.TypeTXT {
		m.doubtTexts(now)
	}
	e.known, e.answer, e.at, e.failures = err == nil, a, now, 0
	e.due = now.Add(a.ttl)
}

// doubtTexts reads the public keys again because other records have changed: a new address must
// not be attributed to an old key. The domain is not complete until then.
func (m *machine) doubtTexts(now time.Time) {
	for q, e := range m.entries {
		if q.rtype == dns.TypeTXT && e.known {
			e.due, e.urgent, e.unsure = now, true, true
		}
	}
}

// refreshAll queries everything again at once.
func (m *machine) refreshAll(now time.Time) {
	for _, e := range m.entries {
		e.due, e.urgent, e.failures = now, true, 0
	}
}

// entry returns the entry of a question, and creates one if there is none; nil if there is no
// room.
func (m *machine) entry(now time.Time, q question) *entry {
	e := m.entries[q]
	if e == nil {
		if len(m.entries) >= maxQuestions {
			m.full = true
			return nil
		}
		e = &entry{due: now}
		m.entries[q] = e
	}
	e.used = true
	return e
}
