//go:build !linux

package scale

import (
	"errors"
	"time"
)

// Usage is what a process has at a moment, and what it has used until then.
type Usage struct {
	Anon, RSS uint64
	CPU       time.Duration
}

// usageOf reads /proc, which other systems do not have.
func usageOf(int) (Usage, error) { return Usage{}, errors.New("only Linux tells what a process uses") }

// threadTime is what the calling thread has used.
func threadTime() (time.Duration, error) {
	return 0, errors.New("only Linux tells what a thread uses")
}
