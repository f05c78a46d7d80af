package discovery

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleep returns for how long this host has been suspended since it started: what
// CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC.
func asleep() (d time.Duration, known bool) {
	var mono, boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0, false
	}
	return time.Duration(boot.Nano() - mono.Nano()), true
}
