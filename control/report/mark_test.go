package report

import (
	"strings"
	"testing"
)

// A different mark means a change, unless either is empty.
func TestMarksTellOfChanges(t *testing.T) {
	a, b := MarkOf("auth"), MarkOf("auth", "apiServer")
	if a == b || MarkOf("ab", "c") == MarkOf("a", "bc") || a != MarkOf("auth") {
		t.Fatalf("marks do not tell things apart: %q, %q", a, b)
	}
	for _, c := range []struct {
		before, now    Mark
		changed, ended bool
	}{
		{"", a, true, false}, {a, "", false, false}, {a, a, false, false}, {a, b, true, true},
		{a, NoIdentity, true, true}, {NoIdentity, b, true, false},
	} {
		if got := (Report{Offers: c.now}).OffersChanged(Report{Offers: c.before}); got != c.changed {
			t.Errorf("offers %q after %q: changed %v", c.now, c.before, got)
		}
		if got := (Report{Identity: c.now}).IdentityEnded(Report{Identity: c.before}); got != c.ended {
			t.Errorf("identity %q after %q: ended %v", c.now, c.before, got)
		}
	}
	other := MarkOf("something else")
	for what, r := range map[string]Report{"offers": {Offers: other}, "identity": {Identity: other}, "no identity": {Identity: NoIdentity}, "none": {}} {
		was := full()
		was.Offers, was.Identity = a, b
		now := was
		if r.Offers != "" {
			now.Offers = r.Offers
		}
		if r.Identity != "" {
			now.Identity = r.Identity
		}
		if got, want := now.Same(was), what == "none"; got != want {
			t.Errorf("a report with another mark (%s) is the same: %v, want %v", what, got, want)
		}
	}
}

// An invalid mark means nothing, and is no reason to refuse the rest.
func TestAMarkThatIsNoneSaysNothing(t *testing.T) {
	for _, s := range []string{"0123456789abcdef0", "rm -rf", "ABCD", "é"} {
		r := full()
		r.Offers, r.Identity = Mark(s), Mark(s)
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(body)
		if err != nil || got.Offers != "" || got.Identity != "" {
			t.Errorf("%q: got offers %q, identity %q, %v; want nothing", s, got.Offers, got.Identity, err)
		}
	}
	if m := string(MarkOf("x")); len(m) != maxMark || strings.Trim(m, "0123456789abcdef") != "" {
		t.Errorf("a mark of our own is %q", m)
	}
}
