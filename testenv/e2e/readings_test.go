//go:build linux && e2e

package e2e

import (
	"regexp"
	"strings"
	"sync"
	"testing"
)

// readings are what operators see of each fault: the tables of both sides.
type readings struct {
	mu    sync.Mutex
	texts map[string]string // by the fault's name
}

// take stores the table of both sides.
func (r *readings) take(fault string, f *faultLab) {
	f.t.Helper()
	var b strings.Builder
	for _, w := range f.wards() {
		b.WriteString(w.postern(within(f.t, patience), "check", "-o", "table").stdout)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts == nil {
		r.texts = make(map[string]string)
	}
	r.texts[fault] = b.String()
}

// anonymous removes what differs between any two runs: names, addresses, keys, numbers and times, and
// how often something failed while the fault was made. That may be a row by itself, of a check that is
// ok in other runs.
func anonymous(text string) string {
	text = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(?m)^(\S+ ok  .*|\S.*  PST0119 .*)\n([ \t].*\n)*`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(?m)^[0-9]+ (error|warning|unknown|ok|off)s?\b.*\n([ \t].*\n)*`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(?m)^fix first .*\n([ \t].*\n)*`).ReplaceAllString(text, "") // it repeats the rows
	text = regexp.MustCompile(`\b(left|right|third)\b`).ReplaceAllString(text, "NAME")
	text = regexp.MustCompile(`[A-Za-z0-9+/]{43}=`).ReplaceAllString(text, "KEY")
	text = regexp.MustCompile(`\[?\bfd[0-9a-f:]+\]?`).ReplaceAllString(text, "ADDRESS")
	text = regexp.MustCompile(`\b[0-9][0-9.:]*`).ReplaceAllString(text, "N")
	text = strings.Join(strings.Fields(text), " ")
	return regexp.MustCompile(`; it comes and goes \(N of [^)]*\)|; besides, N of the last N checks failed(, the last [^,;:]*? ago)?( with PST[0-9]{4})?`).ReplaceAllString(text, "")
}

// Two runs of one fault read alike, whatever came and went before.
func TestReadingsOfOneFaultAreAlike(t *testing.T) {
	once := `checks of gateway left at 2026-05-04T12:00:00Z

right
✓ ok       → gateway  12 ms  12s ago
✗ error    → apiServer  PST0310 tcp  12s ago
  cause: the API server of right refuses connections
  fix:   start it
✓ ok       → auth  12s ago

1 error, 2 ok
fix first PST0310 right → apiServer
`
	again := `checks of gateway left at 2026-05-04T12:00:30Z

right
! warning  → gateway  PST0119 ping  12 ms  3s ago
  cause: it works now, but 2 of the last 9
         checks failed with PST0101
  fix:   see when it failed
✗ error    → apiServer  PST0310 tcp  3s ago
  cause: the API server of right refuses connections%s
  fix:   start it
✓ ok       → auth  3s ago

1 error, 1 warning, 1 ok
fix first PST0310 right → apiServer, then
  PST0119 right → gateway
`
	for _, more := range []string{"", "; it comes and goes (2 of the\n         last 9 checks failed)", "; besides, 2 of the last\n         9 checks failed, the last 40 s ago with PST0302"} {
		if a, b := anonymous(once), anonymous(strings.ReplaceAll(again, "%s", more)); a != b {
			t.Errorf("with %q:\n%s\n%s", more, a, b)
		}
	}
	if a, b := anonymous(once), anonymous(strings.ReplaceAll(once, "refuses connections", "is silent")); a == b {
		t.Errorf("two faults read alike: %s", a)
	}
}

// differ fails if two faults read alike, with or without their codes.
func (r *readings) differ(t *testing.T) {
	t.Helper()
	seen := make(map[string]string)
	for fault, text := range r.texts {
		plain := regexp.MustCompile(`PST[0-9]{4}`).ReplaceAllString(anonymous(text), "CODE")
		if other, found := seen[plain]; found {
			t.Errorf("%q and %q read alike but for names, numbers and codes:\n%s", fault, other, text)
		}
		seen[plain] = fault
	}
}
