//go:build !linux

package scale

import (
	"errors"
	"time"
)

// Usage is a process's current memory and its processor time so far.
type Usage struct {
	Anon, RSS uint64
	CPU       time.Duration
}

// usageOf fails: it needs /proc.
func usageOf(int) (Usage, error) { return Usage{}, errors.New("only Linux tells what a process uses") }

// threadTime fails: it needs Linux.
func threadTime() (time.Duration, error) {
	return 0, errors.New("only Linux tells what a thread uses")
}
