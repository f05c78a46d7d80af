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

// lateness receives how long something took, and how long it may take on an idle machine.
type lateness func(what string, took, most time.Duration)

// onTime runs something with time limits, and once more from the start if it was late. With two
// processors and other tests running, being late once says little, and being late twice a lot.
// Any other failure fails at once.
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

// late checks how long something took, and fails the test if that is too long on a machine as
// busy as this one.
func late(t *testing.T, what string, took, most time.Duration) {
	t.Helper()
	text, is := tooLate(what, took, most)
	t.Log(text)
	if is {
		t.Error(text)
	}
}

// tooLate reports whether something took too long on a machine as busy as this one, with a
// message.
func tooLate(what string, took, most time.Duration) (text string, is bool) {
	most *= slow()
	return fmt.Sprintf("%s: %v, want at most %v", what, took.Round(10*time.Millisecond), most), took > most
}

// mostSlow limits the factor on any machine.
const mostSlow = 5

// slow returns by how much a busy machine is slower: its load per processor, at most mostSlow.
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
