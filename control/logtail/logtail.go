// Package logtail is what a gateway's log goes through: it bounds how much anyone can have
// written, keeps the last records in memory, so that a screen or a support bundle can show
// them (a gateway in a pod has no log file to read), and keeps alarms apart from them.
//
// A [Tail] is a [slog.Handler] before another one.
//
// # Bounds
//
// A record of level info or above is written if it is within the rate of its kind (message,
// event and subject), of its subject (a ticket, a peer, an address), and of all subjects
// together. Where anyone can invent subjects, there is a rate for the message as well. What
// is beyond is counted: the next record that passes has the number as "unrecorded", and where
// none comes, [Tail.Settle] writes a closing one. Decisions of the audit log that are not
// [audit.Event.Frequent] always pass: they are bounded by the rate of the requests that cause
// them. So does the first record of an alarm.
//
// # Alarms
//
// A warning with a PST code is an alarm: it is counted by code and subject, and [Tail.Alarms]
// returns it with its first record however many records come after it.
//
// # Records
//
// What is kept is bounded by number and by the length of each text; the rest of a long value
// is cut. Values are kept as the text handler of log/slog would write them, so that secrets
// that redact themselves there do so here.
package logtail

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
)

const (
	// kept is the number of records: some 10 minutes of a busy gateway at level info, and
	// at most 1.5 MB were all of them as long as they may be.
	kept = 500
	// maxAttrs and maxText bound one record, in attributes and bytes.
	maxAttrs = 24
	maxText  = 1 << 10
	// maxRecord bounds all texts of a record together, in bytes.
	maxRecord = 3 << 10
)

// Tail passes records on and keeps the last of them. It is safe for concurrent use.
type Tail struct {
	next   slog.Handler
	shared *shared
	// attrs and prefix are those of WithAttrs and WithGroup; given are attrs as they were
	// given outside of groups.
	attrs  []api.LogAttr
	given  []slog.Attr
	prefix string
}

// shared is what a Tail and those derived from it have in common.
type shared struct {
	ring   ring
	bound  *bound
	alarms *alarms
}

// ring is the last records.
type ring struct {
	mu      sync.Mutex
	records []api.LogRecord // the oldest at seq % kept once it is full
	seq     uint64
}

// New puts a Tail before next. What is kept is what next takes, and whatever is of level
// info or above.
func New(next slog.Handler) *Tail {
	return &Tail{next: next, shared: &shared{bound: newBound(), alarms: newAlarms()}}
}

// After returns the records that are kept and came after the one with that number, the
// oldest first; 0 gives all.
func (t *Tail) After(seq uint64) []api.LogRecord {
	r := &t.shared.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq >= r.seq { // of a process before this one, perhaps
		return nil
	}
	n := uint64(len(r.records))
	from := max(seq, r.seq-n) // n records, numbered r.seq-n+1 … r.seq
	out := make([]api.LogRecord, 0, r.seq-min(from, r.seq))
	for s := from + 1; s <= r.seq; s++ {
		out = append(out, r.records[(s-1)%kept])
	}
	return out
}

// Enabled holds for what is kept.
func (t *Tail) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || t.next.Enabled(ctx, level)
}

// Handle keeps the record and passes it on, unless it is one too many.
func (t *Tail) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return t.pass(ctx, r)
	}
	now := r.Time
	if now.IsZero() {
		now = time.Now()
	}
	s := summarise(r, t.given)
	fresh := s.isAlarm() && t.shared.alarms.raise(s, now, func() api.LogRecord { return t.record(r) })
	unrecorded, ok := t.shared.bound.admit(s, now)
	if !ok && !fresh {
		return nil
	}
	if unrecorded > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64(audit.KeyUnrecorded, unrecorded))
	}
	return t.pass(ctx, r)
}

// pass keeps a record and passes it on.
func (t *Tail) pass(ctx context.Context, r slog.Record) error {
	t.shared.ring.add(t.record(r))
	if !t.next.Enabled(ctx, r.Level) {
		return nil
	}
	return t.next.Handle(ctx, r)
}

// record is a record as it is kept.
func (t *Tail) record(r slog.Record) api.LogRecord {
	room := maxRecord
	cut := func(s string) string {
		s = shorten(s, min(room, maxText))
		room -= len(s)
		return s
	}
	rec := api.LogRecord{Time: r.Time.UTC(), Level: level(r.Level), Message: cut(r.Message)}
	if r.Time.IsZero() {
		rec.Time = time.Now().UTC()
	}
	attrs := slices.Clone(t.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, t.prefix, a)
		return len(attrs) < maxAttrs
	})
	for _, a := range attrs {
		rec.Attrs = append(rec.Attrs, api.LogAttr{Key: cut(a.Key), Value: cut(a.Value)})
	}
	return rec
}

func (r *ring) add(rec api.LogRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	rec.Seq = r.seq
	if len(r.records) < kept {
		r.records = append(r.records, rec)
		return
	}
	r.records[(r.seq-1)%kept] = rec
}

// WithAttrs returns a Tail whose records carry these.
func (t *Tail) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := &Tail{next: t.next.WithAttrs(attrs), shared: t.shared, attrs: slices.Clone(t.attrs), given: t.given, prefix: t.prefix}
	for _, a := range attrs {
		out.attrs = flatten(out.attrs, t.prefix, a)
	}
	if t.prefix == "" {
		out.given = slices.Concat(t.given, attrs)
	}
	return out
}

// WithGroup returns a Tail whose attributes from now on are named within the group.
func (t *Tail) WithGroup(name string) slog.Handler {
	out := &Tail{next: t.next.WithGroup(name), shared: t.shared, attrs: t.attrs, given: t.given, prefix: t.prefix}
	if name != "" {
		out.prefix += name + "."
	}
	return out
}

// flatten appends an attribute, and of a group its members.
func flatten(to []api.LogAttr, prefix string, a slog.Attr) []api.LogAttr {
	v := a.Value.Resolve()
	switch {
	case len(to) >= maxAttrs, a.Equal(slog.Attr{}):
		return to
	case v.Kind() == slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range v.Group() {
			to = flatten(to, prefix, member)
		}
		return to
	}
	return append(to, api.LogAttr{Key: prefix + a.Key, Value: text(v)})
}

// text writes a value as slog's text handler does, which survives the methods of values
// that panic: nil pointers, mostly.
func text(v slog.Value) (out string) {
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprintf("!PANIC: %v", r)
		}
	}()
	if v.Kind() != slog.KindAny {
		if v.Kind() == slog.KindTime {
			return v.Time().UTC().Format(time.RFC3339Nano)
		}
		return v.String()
	}
	switch a := v.Any().(type) {
	case encoding.TextMarshaler:
		if b, err := a.MarshalText(); err == nil {
			return string(b)
		}
	case error:
		return a.Error()
	}
	return fmt.Sprintf("%+v", v.Any())
}

// shorten cuts a text to so many bytes, not within a character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// level names a level as api.LogRecord does.
func level(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "DEBUG"
	case l < slog.LevelWarn:
		return "INFO"
	case l < slog.LevelError:
		return "WARN"
	}
	return "ERROR"
}
