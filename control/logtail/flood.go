package logtail

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/audit"
)

// rate is a burst of records, and the time until one more is allowed.
type rate struct {
	burst float64
	every time.Duration
}

// Rates, from the narrowest to the widest. A record has to be within all that apply. In a second,
// the log can have 25 records about one peer: a subject's burst, those that follow within a
// second, and the bursts of identities and rotations (package auth), which are always recorded.
var (
	// kindInfo and kindWarn are for one kind of record of one subject. Repeated refusals contain
	// no news; connections do.
	kindInfo = rate{10, 500 * time.Millisecond}
	kindWarn = rate{10, 10 * time.Second}
	// perSubject is for all records that one peer, ticket or address causes. A peer that connects
	// has 10 (its path, its handshake, its checks), and what it is refused then is not to be missed.
	perSubject = rate{16, 500 * time.Millisecond}
	// perMessage is for one message with all subjects that anyone can invent, and for records
	// without a subject.
	perMessage = rate{60, time.Second}
	// perGateway is for all subjects together. A restart with 1,000 peers is within it.
	perGateway = rate{2000, 10 * time.Millisecond}
)

const (
	// maxCounted bounds the number of counts, which take some 200 bytes each.
	maxCounted = 8192
	// settleAfter is how long no record of a kind has to be left out for a flood to be over.
	// maxSettled bounds how many ended floods are reported at a time.
	settleAfter = 10 * time.Second
	maxSettled  = 20
)

// subject is whom or what a record is about: the one that caused it, if known.
type subject struct{ key, value string }

// subjectKeys are the attributes that identify a subject, in order of preference. A ticket comes
// first, because a joiner can choose its own name. Then come names that operators have chosen.
// The rest can be invented.
var subjectKeys = []struct {
	key      string
	invented bool
}{{audit.KeyTicket, false}, {audit.KeyPeer, false}, {"target", false}, {audit.KeyAddress, true}, {"name", true}}

// summary is what bounds and alarms need of a record.
type summary struct {
	message, event, code string
	level                slog.Level
	subject              subject
	invented             bool
}

// summarise summarises a record; given are the attributes of its logger.
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

// maxSubject bounds the stored text of a subject, in bytes.
const maxSubject = 256

// host removes the port of an address, which differs for each connection.
func host(v string) string {
	if a, err := netip.ParseAddrPort(v); err == nil {
		return a.Addr().String()
	}
	return v
}

// counted is a kind of records: those with one message, event and subject. Empty fields match
// all.
type counted struct {
	message, event string
	subject        subject
}

// count is the state of a kind's rate, and the number of records that were left out. A record is
// checked against several counts before it is charged to any, under a common lock. A limiter of
// x/time/rate for each would lock twice, and increase the memory of maxCounted kinds by half.
type count struct {
	rate       rate
	left       float64
	at         time.Time
	unrecorded uint64
	since      time.Time // when the last of them was left out
	level      slog.Level
}

// fill adds the allowance for the time since the last call. A clock that goes back adds nothing.
func (c *count) fill(now time.Time) {
	if d := now.Sub(c.at); d > 0 {
		c.left = min(c.rate.burst, c.left+float64(d)/float64(c.rate.every))
	}
	c.at = now
}

// bound decides which records are too many. It is safe for concurrent use.
type bound struct {
	mu     sync.Mutex
	counts map[counted]*count
	swept  time.Time
	total  uint64 // of records left out
}

func newBound() *bound { return &bound{counts: map[counted]*count{}} }

// admit reports whether to write a record, and how many of its kind were left out since the last
// one.
func (b *bound) admit(s summary, now time.Time) (unrecorded uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.event != "" && s.message == audit.Message && !audit.Event(s.event).Frequent() {
		return 0, true
	}
	// The widest comes first, so that invented subjects are not all remembered.
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

// of returns the count of a kind. If there are too many counts, it drops those with a full
// allowance and nothing to report. If that is not enough, it returns the count of the whole
// gateway.
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

// settled returns the kinds of which records were left out, but none for settleAfter, and resets
// their numbers. It returns at most maxSettled, the oldest first. With end it also returns those
// whose flood is not over, and all others in one.
func (b *bound) settled(now time.Time, end bool) []leftOut {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []leftOut
	for k, c := range b.counts {
		if c.unrecorded > 0 && (end || now.Sub(c.since) >= settleAfter) {
			out = append(out, leftOut{counted: k, count: *c})
		}
	}
	slices.SortFunc(out, func(a, b leftOut) int { return a.since.Compare(b.since) })
	some := out[:min(len(out), maxSettled)]
	if !end {
		out = some
	}
	for _, x := range out {
		b.counts[x.counted].unrecorded = 0
	}
	if rest := out[len(some):]; len(rest) > 0 {
		more := leftOut{count: rest[len(rest)-1].count, kinds: len(rest)}
		for _, x := range rest[:len(rest)-1] {
			more.unrecorded += x.unrecorded
			more.level = max(more.level, x.level)
		}
		some = append(some[:len(some):len(some)], more)
	}
	return some
}

// leftOut is a kind of records and how many of them were left out.
type leftOut struct {
	counted
	count
	kinds int // if it stands for several kinds, how many
}

// record returns a log record about it.
func (x leftOut) record(now time.Time) slog.Record {
	r := slog.NewRecord(now, x.level, "records were left out of the log: too many of a kind", 0)
	what := cmp.Or(x.message, "any")
	if x.kinds > 0 {
		what = fmt.Sprintf("and %d more", x.kinds)
	}
	r.AddAttrs(slog.String("record", what))
	if x.event != "" {
		r.AddAttrs(slog.String(audit.KeyEvent, x.event))
	}
	if x.subject.key != "" {
		r.AddAttrs(slog.String(x.subject.key, x.subject.value))
	}
	r.AddAttrs(slog.Uint64(audit.KeyUnrecorded, x.unrecorded), slog.Time("last", x.since.UTC()))
	return r
}

// Unrecorded returns the number of records left out since the start.
func (t *Tail) Unrecorded() uint64 {
	t.shared.bound.mu.Lock()
	defer t.shared.bound.mu.Unlock()
	return t.shared.bound.total
}

// Settle logs ended floods: how many records were left out that no later record reported. Call it
// about every second.
func (t *Tail) Settle(ctx context.Context, now time.Time) { t.settle(ctx, now, false) }

// End also logs floods that are not over. Call it when the process ends.
func (t *Tail) End(ctx context.Context, now time.Time) { t.settle(ctx, now, true) }

func (t *Tail) settle(ctx context.Context, now time.Time, end bool) {
	for _, x := range t.shared.bound.settled(now, end) {
		_ = t.pass(ctx, x.record(now)) // there is nowhere to report a log that cannot be written
	}
}
