package logtail

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
)

const (
	// maxPerCode is the number of subjects that are kept separately for each code, and maxCodes
	// the number of codes. Others are counted together. There are some 150 codes
	// (control/catalogue); few can have more than one or two subjects.
	maxPerCode = 64
	maxCodes   = 256
	// maxDecided is the number of subjects for codes whose alarms are decisions ([audit.Alarm]):
	// each is a ticket, and none may hide another. It exceeds the number of tickets that a
	// gateway stores. A record takes some 500 bytes.
	maxDecided = 2048
	// staleAfter is the age after which an alarm that has not been raised again may be dropped
	// for another.
	staleAfter = time.Hour
	// others is the subject of alarms that are counted together.
	others = "others"
)

// alarms are the warnings with a code, each once, so that a flood of records cannot displace
// them. It is safe for concurrent use.
type alarms struct {
	mu     sync.Mutex
	byCode map[string]map[subject]*api.Alarm
}

func newAlarms() *alarms { return &alarms{byCode: map[string]map[subject]*api.Alarm{}} }

// isAlarm reports whether a record is an alarm.
func (s summary) isAlarm() bool {
	return s.level >= slog.LevelWarn && strings.HasPrefix(s.code, "PST")
}

// raise counts an alarm and reports whether it is new. Only then does it call record.
func (a *alarms) raise(s summary, now time.Time, record func() api.LogRecord) (fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	code, about := s.code, s.subject
	if a.byCode[code] == nil && len(a.byCode) >= maxCodes {
		code, about = others, subject{value: others}
	}
	if a.byCode[code] == nil {
		a.byCode[code] = map[subject]*api.Alarm{}
	}
	of, most := a.byCode[code], maxPerCode
	if s.event == string(audit.Alarm) {
		most = maxDecided
	}
	if of[about] == nil && len(of) >= most && !drop(of, now) {
		about = subject{value: others}
	}
	x := of[about]
	if x == nil {
		r := record()
		x = &api.Alarm{Code: code, Subject: strings.TrimSpace(about.key + " " + about.value), First: now.UTC(), Event: s.event,
			Level: r.Level, Message: r.Message, Attrs: r.Attrs}
		of[about] = x
		fresh = true
	}
	x.Count++
	x.Last = now.UTC()
	return fresh
}

// drop makes room by removing the alarm with the oldest last occurrence, if that is stale.
func drop(of map[subject]*api.Alarm, now time.Time) bool {
	var oldest subject
	var last time.Time
	for s, x := range of {
		if last.IsZero() || x.Last.Before(last) {
			oldest, last = s, x.Last
		}
	}
	if now.Sub(last) < staleAfter {
		return false
	}
	delete(of, oldest)
	return true
}

// list returns all alarms, the latest last.
func (a *alarms) list() []api.Alarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []api.Alarm{}
	for _, of := range a.byCode {
		for _, x := range of {
			out = append(out, *x)
		}
	}
	slices.SortFunc(out, func(a, b api.Alarm) int {
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
	return out
}

// Alarms returns the warnings with a code since the start, even if their records have been
// dropped: one for each code and subject, with its first record.
func (t *Tail) Alarms() []api.Alarm { return t.shared.alarms.list() }
