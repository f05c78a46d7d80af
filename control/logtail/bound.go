package logtail

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/audit"
)

// rate is how many records may come at once, and how long it takes until there may be one
// more.
type rate struct {
	burst float64
	every time.Duration
}

// Rates, from the narrowest to the widest. A record has to be within each that applies to it.
// The burst of a subject, what follows within a second, and the identities and rotations that a
// peer may have in a row (package auth), which are always recorded, are 20 together: what the log
// may have of one peer in a second.
var (
	// kindInfo and kindWarn are for one kind of record of one subject. What is refused again
	// and again says nothing new; who connects does.
	kindInfo = rate{10, 500 * time.Millisecond}
	kindWarn = rate{10, 10 * time.Second}
	// perSubject is for all that one peer, ticket or address has us write.
	perSubject = rate{11, 500 * time.Millisecond}
	// perMessage is for one kind of all those subjects that anyone can invent, and of those
	// records that have none.
	perMessage = rate{60, time.Second}
	// perGateway is for all subjects together. A restart with 1,000 peers is within it.
	perGateway = rate{2000, 10 * time.Millisecond}
)

const (
	// maxCounted bounds the memory for counting, some 200 bytes each.
	maxCounted = 8192
	// settleAfter is how long nothing of a kind has to be left out for its flood to be over,
	// and maxSettled how many ends of floods are told of at a time.
	settleAfter = 10 * time.Second
	maxSettled  = 20
)

// subject is whom or what a record is about: who is to blame for it, where anyone is.
type subject struct{ key, value string }

// subjectKeys are the attributes that name a subject, in the order in which they are asked.
// One of a ticket comes first, since who redeems it may call itself anything; then what
// operators have named. The rest can be invented.
var subjectKeys = []struct {
	key      string
	invented bool
}{{audit.KeyTicket, false}, {audit.KeyPeer, false}, {"target", false}, {audit.KeyAddress, true}, {"name", true}}

// summary is what bounds and alarms need to know of a record.
type summary struct {
	message, event, code string
	level                slog.Level
	subject              subject
	invented             bool
}

// summarise reads a record; given are the attributes of its logger.
func summarise(r slog.Record, given []slog.Attr) summary {
	s := summary{message: r.Message, level: r.Level}
	best := len(subjectKeys)
	look := func(a slog.Attr) bool {
		switch a.Key {
		case audit.KeyEvent:
			s.event = text(a.Value.Resolve())
		case audit.KeyCode:
			s.code = text(a.Value.Resolve())
		}
		for i, k := range subjectKeys[:best] {
			if a.Key != k.key {
				continue
			}
			if v := text(a.Value.Resolve()); v != "" {
				best, s.invented = i, k.invented
				s.subject = subject{k.key, shorten(host(v), maxSubject)}
			}
			break
		}
		return true
	}
	for _, a := range given {
		look(a)
	}
	r.Attrs(look)
	return s
}

// maxSubject bounds what is remembered of a subject, in bytes.
const maxSubject = 256

// host leaves the port of an address out, which is another with each connection.
func host(v string) string {
	if a, err := netip.ParseAddrPort(v); err == nil {
		return a.Addr().String()
	}
	return v
}

// counted is a kind of records: those of one message, event and subject. What is empty stands
// for all there are.
type counted struct {
	message, event string
	subject        subject
}

// count is how far a kind is within its rate, and what was left out of it. A record is held
// against several counts before it is taken from any, under the lock of all: a limiter of
// x/time/rate each would lock twice for that, and make the memory of maxCounted kinds larger by
// half.
type count struct {
	rate       rate
	left       float64
	at         time.Time
	unrecorded uint64
	since      time.Time // when the last of them was left out
	level      slog.Level
}

// fill adds what time has brought. A clock that goes back brings nothing.
func (c *count) fill(now time.Time) {
	if d := now.Sub(c.at); d > 0 {
		c.left = min(c.rate.burst, c.left+float64(d)/float64(c.rate.every))
	}
	c.at = now
}

// bound says which records are too many. It is safe for concurrent use.
type bound struct {
	mu     sync.Mutex
	counts map[counted]*count
	swept  time.Time
	total  uint64 // of what was left out
}

func newBound() *bound { return &bound{counts: map[counted]*count{}} }

// admit reports whether a record is to be written, and how many of its kind were not since
// the last one.
func (b *bound) admit(s summary, now time.Time) (unrecorded uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.event != "" && s.message == audit.Message && !audit.Event(s.event).Frequent() {
		return 0, true
	}
	// The widest is looked at first: who invents subjects is not remembered by each of them.
	kind := counted{s.message, s.event, s.subject}
	anyone := s.invented || s.subject == subject{}
	teller := kind
	var within []*count
	ask := func(k counted, r rate) bool {
		c := b.of(k, r, now)
		c.fill(now)
		within = append(within, c)
		return c.left >= 1
	}
	ok = s.subject == subject{} || ask(counted{}, perGateway)
	if anyone {
		teller = counted{message: s.message, event: s.event}
		ok = ok && ask(teller, perMessage)
	}
	if s.subject != (subject{}) {
		each := kindInfo
		if s.level >= slog.LevelWarn {
			each = kindWarn
		}
		ok = ok && ask(counted{subject: s.subject}, perSubject) && ask(kind, each)
	}
	if !ok {
		c := b.of(teller, kindWarn, now)
		c.unrecorded++
		c.since, c.level = now, s.level
		b.total++
		return 0, false
	}
	for _, c := range within {
		c.left--
	}
	c := b.of(teller, kindWarn, now)
	unrecorded, c.unrecorded = c.unrecorded, 0
	return unrecorded, true
}

// of is the count of a kind. When there are too many, those that have no news make room; if
// there are none, the kind is counted with all others.
func (b *bound) of(k counted, r rate, now time.Time) *count {
	if c := b.counts[k]; c != nil {
		return c
	}
	if len(b.counts) >= maxCounted && now.Sub(b.swept) > time.Second {
		b.swept = now
		for key, c := range b.counts {
			if c.fill(now); c.left >= c.rate.burst && c.unrecorded == 0 {
				delete(b.counts, key)
			}
		}
	}
	if len(b.counts) >= maxCounted {
		if k, r = (counted{}), perGateway; b.counts[k] != nil {
			return b.counts[k]
		}
	}
	c := &count{rate: r, left: r.burst, at: now}
	b.counts[k] = c
	return c
}

// settled returns the kinds of which nothing has been left out for a while, and forgets what
// was; those of longest ago come first, and all of them at the end.
func (b *bound) settled(now time.Time, end bool) []leftOut {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []leftOut
	for k, c := range b.counts {
		if c.unrecorded > 0 && (end || now.Sub(c.since) >= settleAfter) {
			out = append(out, leftOut{k, *c})
		}
	}
	slices.SortFunc(out, func(a, b leftOut) int { return a.since.Compare(b.since) })
	out = out[:min(len(out), maxSettled)]
	for _, x := range out {
		b.counts[x.counted].unrecorded = 0
	}
	return out
}

// leftOut is a kind of records and how many of it were left out.
type leftOut struct {
	counted
	count
}

// record says so.
func (x leftOut) record(now time.Time) slog.Record {
	r := slog.NewRecord(now, x.level, "records were left out of the log: too many of a kind", 0)
	r.AddAttrs(slog.String("record", cmp.Or(x.message, "any")))
	if x.event != "" {
		r.AddAttrs(slog.String(audit.KeyEvent, x.event))
	}
	if x.subject.key != "" {
		r.AddAttrs(slog.String(x.subject.key, x.subject.value))
	}
	r.AddAttrs(slog.Uint64(audit.KeyUnrecorded, x.unrecorded), slog.Time("last", x.since.UTC()))
	return r
}

// Unrecorded is how many records were left out since the start.
func (t *Tail) Unrecorded() uint64 {
	t.shared.bound.mu.Lock()
	defer t.shared.bound.mu.Unlock()
	return t.shared.bound.total
}

// Settle reports the floods that are over: how many records were left out that no later
// record has told of. Call it every second or so.
func (t *Tail) Settle(ctx context.Context, now time.Time) { t.settle(ctx, now, false) }

// End reports those that are not over, too. The process ends.
func (t *Tail) End(ctx context.Context, now time.Time) { t.settle(ctx, now, true) }

func (t *Tail) settle(ctx context.Context, now time.Time, end bool) {
	for _, x := range t.shared.bound.settled(now, end) {
		_ = t.pass(ctx, x.record(now)) // nobody hears of a log that cannot be written
	}
}
