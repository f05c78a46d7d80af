//go:build linux && e2e

package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lateness is told how long something took, and for how long it may take on a machine that does nothing else.
type lateness func(what string, took, most time.Duration)

// onTime plays something whose times are bounded, and once more from the start when it was
// late: with two processors and other tests beside it, one that is late once says little,
// and one that is late twice a lot. Whatever else goes wrong fails at once.
func onTime(t *testing.T, play func(late lateness)) {
	t.Helper()
	var late []string
	for try := range 2 {
		late = nil
		play(func(what string, took, most time.Duration) {
			if text, is := tooLate(what, took, most); is {
				late = append(late, text)
			}
		})
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

// late tells how long something took, and fails the test when that is too long, on a machine as busy as this one.
func late(t *testing.T, what string, took, most time.Duration) {
	t.Helper()
	text, is := tooLate(what, took, most)
	t.Log(text)
	if is {
		t.Error(text)
	}
}

// tooLate reports whether something took longer than it may on a machine as busy as this one, and says so.
func tooLate(what string, took, most time.Duration) (text string, is bool) {
	most *= slow()
	return fmt.Sprintf("%s: %v, want at most %v", what, took.Round(10*time.Millisecond), most), took > most
}

// mostSlow keeps a bound a bound on any machine.
const mostSlow = 5

// slow is by how much a machine that does much else is slower: its load for each processor, and mostSlow at most.
func slow() time.Duration {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	load, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	if err != nil {
		return 1
	}
	return time.Duration(min(max(1, int(load)/runtime.NumCPU()), mostSlow))
}
