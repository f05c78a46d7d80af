package patience

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestATestReportsBeforeItsTimeIsUp(t *testing.T) {
	for _, c := range []struct{ timeout, after, want time.Duration }{
		{10 * time.Minute, 0, 10*time.Minute - spare},
		{10 * time.Minute, 9 * time.Minute, time.Minute - spare},
		{10 * time.Minute, 10 * time.Minute, least},
		{0, 10 * time.Hour, most},
		{10 * time.Hour, 0, most},
	} {
		if got := left(c.timeout, started.Add(c.after)); got != c.want {
			t.Errorf("%v after the start, with a timeout of %v: %v, want %v", c.after, c.timeout, got, c.want)
		}
	}
	end, ok := t.Deadline()
	if !ok {
		t.Skip("there is no -timeout")
	}
	if got, want := Left(), min(time.Until(end)-spare, most); got > want || got < want-time.Minute {
		t.Errorf("%v before the end of the run: %v, want %v", time.Until(end), got, want)
	}
}

func TestVirtualTimeHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := Left(); got != most {
			t.Errorf("%v, want %v", got, most)
		}
	})
}
