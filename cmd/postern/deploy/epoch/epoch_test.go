package epoch

import (
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	for text, want := range map[string]time.Time{"": time.Unix(0, 0), "1767225600": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if got, err := Time(); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"2026-01-01", "1.5", " 1"} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		if got, err := Time(); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
