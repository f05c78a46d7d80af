package scale

import (
	"testing"
	"time"
)

func TestProcFiles(t *testing.T) {
	u := parseStatus([]byte("Name:\tpostern\nVmRSS:\t   2048 kB\nRssAnon:\t    1024 kB\nRssFile:\t      10 kB\n"))
	if u.Anon != 1<<20 || u.RSS != 2<<20 {
		t.Errorf("got %+v, want 1 MiB anonymous of 2 MiB", u)
	}
	cpu, err := parseStat([]byte("42 (a (strange) name) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 5 0 1 1 1"))
	if err != nil || cpu != 2*time.Second {
		t.Errorf("got %v and %v, want 2 s", cpu, err)
	}
	if _, err := parseStat([]byte("42 (short) S 1")); err == nil {
		t.Error("a line without times gives no error")
	}
}
