//go:build linux && e2e

package e2e

import (
	"context"
	"os"
	"testing"
	"time"
)

func mb(n int) float64 { return float64(n) / (1 << 20) }

// peakMemory returns the highest RssAnon seen during a time.
func peakMemory(t *testing.T, pid int, during time.Duration) int {
	t.Helper()
	stop := watchPeak(t, pid)
	<-time.After(during)
	return stop()
}

// watchPeak reads RssAnon until it is stopped and returns the highest value.
func watchPeak(t *testing.T, pid int) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	peak := make(chan int)
	go func() {
		defer close(peak)
		tick := time.NewTicker(poll)
		defer tick.Stop()
		highest := 0
		for {
			if b, err := os.ReadFile(procFile(pid, "status")); err == nil {
				highest = max(highest, parseRssAnon(b))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				peak <- highest
				return
			}
		}
	}()
	return func() int { cancel(); return <-peak }
}
