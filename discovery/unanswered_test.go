package discovery

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestWhatAnUnansweredProbeSays(t *testing.T) {
	stopped := errors.New("stopped")
	for _, c := range []struct {
		cause   error
		probing bool
		want    string
	}{
		{context.DeadlineExceeded, true, "no answer in 2 s"},
		{context.DeadlineExceeded, false, "no answer in 2 s, and never one to a probe: is it an older version?"},
		{stopped, false, "no answer: stopped"},
	} {
		err := unanswered(c.cause, 2003*time.Millisecond, c.probing)
		if err.Error() != c.want || !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%v, probing %v: got %q, want %q", c.cause, c.probing, err, c.want)
		}
	}
}
