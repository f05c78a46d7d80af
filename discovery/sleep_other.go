//go:build !linux

package discovery

import "time"

// asleep is unknown.
func asleep() (d time.Duration, known bool) { return 0, false }
