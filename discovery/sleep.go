package discovery

import (
	"fmt"
	"time"
)

// sleptAfter is how far time must have jumped ahead to be noticed: longer than a busy host delays a
// goroutine or a clock is slewed, shorter than the 30 s after which NATs forget.
const sleptAfter = 8 * time.Second

// clocks are readings of one moment.
type clocks struct {
	wall time.Time     // without a monotonic reading
	mono time.Duration // since any fixed moment; it stops while the host is suspended
	// asleep is for how long the host has been suspended in all, if known.
	asleep time.Duration
	known  bool
}

// sleepWatch notices that time jumped ahead: the host was suspended, the process was stopped (a
// timer fires late), or the wall clock alone jumped. The last may mean that a virtual machine was
// paused, whose other clocks then stop; if it was only set, checking the paths does no harm.
type sleepWatch struct {
	last clocks
	due  time.Duration // on the monotonic clock, when the next look was due
}

// looked says what happened since the last look; "" means nothing. next is the time until the next
// look.
func (w *sleepWatch) looked(now clocks, next time.Duration) string {
	before, due := w.last, w.due
	w.last, w.due = now, now.mono+next
	if before.wall.IsZero() {
		return ""
	}
	asleep := now.asleep - before.asleep
	ahead := now.wall.Sub(before.wall) - (now.mono - before.mono) - asleep
	late := now.mono - due
	switch long := func(d time.Duration) bool { return d > sleptAfter }; {
	case long(asleep):
		return fmt.Sprintf("this host was suspended for %v", asleep.Round(time.Second))
	case long(late):
		return fmt.Sprintf("the process stood still for %v", late.Round(time.Second))
	case long(ahead) && now.known:
		return fmt.Sprintf("the clock was set ahead by %v, or a virtual machine was paused", ahead.Round(time.Second))
	case long(ahead):
		return fmt.Sprintf("this host was suspended for %v, or its clock set ahead", ahead.Round(time.Second))
	}
	return ""
}
