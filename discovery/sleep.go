package discovery

import "time"

// sleptAfter is how far time must have run ahead to say that the machine or the process
// stood still: more than a busy machine keeps a goroutine waiting or a clock is slewed,
// less than the 30 s after which NATs forget.
const sleptAfter = 8 * time.Second

// sleepWatch notices that the process did not run for a while: the machine was suspended
// (the wall clock ran on, the monotonic one did not, since Linux's CLOCK_MONOTONIC stands
// still then) or the process was stopped (a timer rings late). A step of the wall clock
// looks like the former; it does no harm to check the paths then.
type sleepWatch struct {
	wall time.Time     // without a monotonic reading
	mono time.Duration // since any fixed moment
	due  time.Duration // on the same clock, when the next look was to be
}

// looked says for how long the process stood still until this look, 0 when it did not.
// next is the time until the next look.
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
