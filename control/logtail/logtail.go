// Package logtail is the handler of a gateway's log. It bounds how many records others can cause,
// keeps the last records in memory for the screen and for support bundles (a gateway in a pod has
// no log file), and keeps alarms separately.
//
// A [Tail] is a [slog.Handler] that wraps another one.
//
// # Bounds
//
// A record of level info or above is written if it is within the rate of its kind (message, event
// and subject), of its subject (a ticket, a peer, an address), and of all subjects together.
// Where anyone can invent subjects, there is a rate for the message as well. Other records are
// counted: the next record that passes has their number as "unrecorded", and if none follows,
// [Tail.Settle] writes one. Audit records that are not [audit.Event.Frequent] always pass,
// because the requests that cause them are rate-limited. So does the first record of an alarm.
//
// # Alarms
//
// A warning with a PST code is an alarm. It is counted by code and subject, and [Tail.Alarms]
// returns it with its first record, however many records follow.
//
// # Records
//
// The number of kept records is bounded, and so is the length of each text; longer values are
// cut. Values are formatted as log/slog's text handler would write them, so that secrets which
// redact themselves there do so here.
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
	// kept is the number of records: some 10 minutes of a busy gateway at level info, and at most
	// 1.5 MB if all are of maximum size.
	kept = 500
	// maxAttrs and maxText bound one record, in attributes and bytes.
	maxAttrs = 24
	maxText  = 1 << 10
	// maxRecord bounds all texts of a record together, in bytes.
	maxRecord = 3 << 10
)

// Tail passes records on and keeps the last ones. It is safe for concurrent use.
type Tail struct {
	next   slog.Handler
	shared *shared
	// attrs and prefix are those of WithAttrs and WithGroup. given are the attributes that were
	// added outside groups, in their original form.
	attrs  []api.LogAttr
	given  []slog.Attr
	prefix string
}

// shared is the common state of a Tail and those derived from it.
type shared struct {
	ring   ring
	bound  *bound
	alarms *alarms
}

// ring contains the last records.
type ring struct {
	mu      sync.Mutex
	records []api.LogRecord // the oldest at seq % kept if it is full
	seq     uint64
}

// New returns a Tail that wraps next. It keeps the records that next accepts, and all of level
// info or above.
func New(next slog.Handler) *Tail {
	return &Tail{next: next, shared: &shared{bound: newBound(), alarms: newAlarms()}}
}

// After returns the kept records after the one with that number, the oldest first; 0 returns all.
func (t *Tail) After(seq uint64) []api.LogRecord {
	r := &t.shared.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq >= r.seq { // perhaps of an earlier process
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

// Enabled reports whether a level is kept.
func (t *Tail) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || t.next.Enabled(ctx, level)
}

// Handle keeps the record and passes it on, unless it exceeds the bounds and is not the first of an
// alarm.
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

// record converts a record to its stored form.
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

// WithAttrs returns a Tail whose records have these attributes.
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

// WithGroup returns a Tail whose further attributes are in the group.
func (t *Tail) WithGroup(name string) slog.Handler {
	out := &Tail{next: t.next.WithGroup(name), shared: t.shared, attrs: t.attrs, given: t.given, prefix: t.prefix}
	if name != "" {
		out.prefix += name + "."
	}
	return out
}

// flatten appends an attribute, or the members of a group.
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

// text formats a value as slog's text handler does, which recovers from panics in a value's
// methods, mostly of nil pointers.
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

// shorten cuts a text at a character boundary, to at most the given number of bytes.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// level returns the name of a level in api.LogRecord.
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
