package patience

import (
	"testing"
	"time"
)

type run struct {
	testing.TB
	end time.Time
}

func (r run) Deadline() (time.Time, bool) { return r.end, !r.end.IsZero() }

func TestATestReportsBeforeItsTimeIsUp(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{time.Hour: time.Hour - spare, spare: 0, -time.Minute: 0} {
		if got := Left(run{t, time.Now().Add(timeout)}); got > want || got < want-time.Minute {
			t.Errorf("%v before the end: %v, want %v", timeout, got, want)
		}
	}
	if got := Left(run{t, time.Time{}}); got != endless {
		t.Errorf("without a timeout: %v, want %v", got, endless)
	}
	if got := Left(&testing.B{}); got != endless {
		t.Errorf("a benchmark: %v, want %v", got, endless)
	}
}
