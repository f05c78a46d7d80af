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

// anonymous removes what differs between any two runs: names, addresses, keys, numbers and times.
func anonymous(text string) string {
	text = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\b(left|right|third)\b`).ReplaceAllString(text, "NAME")
	text = regexp.MustCompile(`[A-Za-z0-9+/]{43}=`).ReplaceAllString(text, "KEY")
	text = regexp.MustCompile(`\[?\bfd[0-9a-f:]+\]?`).ReplaceAllString(text, "ADDRESS")
	text = regexp.MustCompile(`\b[0-9][0-9.:]*`).ReplaceAllString(text, "N")
	return strings.Join(strings.Fields(text), " ")
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
