package check

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func TestAKeyOfNoPeerIsReportedOnceItKeepsDialling(t *testing.T) {
	now := time.Now()
	dials := func(key string, from, to time.Duration) Stranger {
		return Stranger{Fingerprint: key, From: "203.0.113.5:51820", First: now.Add(-from), Last: now.Add(-to)}
	}
	removed := dials("aaaa", time.Minute, time.Second)
	removed.Removed = true
	for _, c := range []struct {
		name  string
		known []Stranger
		want  []string // in the cause; nil for no finding
	}{
		{"none", nil, nil},
		{"once", []Stranger{dials("aaaa", time.Second, time.Second)}, nil},
		{"while it joined", []Stranger{dials("aaaa", 9*time.Second, 0)}, nil},
		{"no more", []Stranger{dials("aaaa", time.Hour, evidenceLife)}, nil},
		{"still", []Stranger{dials("aaaa", 20*time.Second, 5*time.Second)}, []string{"aaaa", "203.0.113.5:51820"}},
		{"several", []Stranger{dials("aaaa", time.Minute, 0), dials("bbbb", 30*time.Second, 0), dials("cccc", 0, 0)}, []string{"aaaa", "1 more"}},
		{"removed", []Stranger{removed}, []string{"was removed here"}},
	} {
		found := strangers(Own{Strangers: c.known}, now)
		if len(found) > 1 || (len(found) == 1) != (c.want != nil) {
			t.Errorf("%s: got %d findings", c.name, len(found))
			continue
		}
		for _, f := range found {
			v := f.Verdict()
			if f.Code != catalogue.UnknownKey || v.Verdict != api.Warning || v.Confidence != api.Likely {
				t.Errorf("%s: got %+v", c.name, v)
			}
			for _, want := range c.want {
				if !strings.Contains(v.Cause, want) {
					t.Errorf("%s: got the cause %q, want %q in it", c.name, v.Cause, want)
				}
			}
		}
	}
}
