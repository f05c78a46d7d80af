//go:build linux && e2e

package e2e

import (
	"fmt"
	"testing"
)

// lateness is told of what took longer than it may.
type lateness func(format string, args ...any)

// onTime plays something whose times are bounded, and once more from the start when it was
// late: with two processors and other tests beside it, one that is late once says little,
// and one that is late twice a lot. Whatever else goes wrong fails at once.
func onTime(t *testing.T, play func(late lateness)) {
	t.Helper()
	var late []string
	for try := range 2 {
		late = nil
		play(func(format string, args ...any) { late = append(late, fmt.Sprintf(format, args...)) })
		switch {
		case len(late) == 0:
			return
		case try == 0:
			t.Logf("late, so once more: %s", late)
		}
	}
	for _, l := range late {
		t.Error(l)
	}
}
