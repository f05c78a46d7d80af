package discovery

import "time"

// sleptAfter is how far time must have jumped ahead to mean that the host or the process was
// suspended: longer than a busy host delays a goroutine or a clock is slewed, shorter than the 30 s
// after which NATs forget.
const sleptAfter = 8 * time.Second

// sleepWatch notices that the process did not run for a while. Either the host was suspended: the
// wall clock ran on, the monotonic one did not, since Linux's CLOCK_MONOTONIC stops then. Or the
// process was stopped: a timer fires late. A step of the wall clock looks like the former; checking
// the paths then does no harm.
type sleepWatch struct {
	wall time.Time     // without a monotonic reading
	mono time.Duration // since any fixed moment
	due  time.Duration // on the same clock, when the next look was due
}

// looked returns for how long the process was suspended before this look, 0 if it was not. next is
// the time until the next look.
func (w *sleepWatch) looked(wall time.Time, mono, next time.Duration) time.Duration {
	before := *w
	*w = sleepWatch{wall.Round(0), mono, mono + next}
	if before.wall.IsZero() {
		return 0
	}
	ahead := w.wall.Sub(before.wall) - (mono - before.mono)
	if gap := max(ahead, mono-before.due); gap > sleptAfter {
		return gap
	}
	return 0
}
