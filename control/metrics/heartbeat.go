package metrics

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Heartbeat reports whether a loop still turns: the loop beats, /livez looks.
type Heartbeat struct {
	limit time.Duration
	start time.Time
	last  atomic.Int64 // nanoseconds after start, by the monotonic clock
}

// NewHeartbeat makes a heartbeat that counts as stopped after limit without a beat.
func NewHeartbeat(limit time.Duration) *Heartbeat {
	return &Heartbeat{limit: limit, start: time.Now()}
}

// Beat says that the loop is alive.
func (h *Heartbeat) Beat() { h.last.Store(int64(time.Since(h.start))) }

// Check reports a loop that has stopped, or nil.
func (h *Heartbeat) Check() error {
	silent := time.Since(h.start) - time.Duration(h.last.Load())
	if silent > h.limit {
		return fmt.Errorf("the gateway's main loop has not turned for %s", silent.Round(time.Second))
	}
	return nil
}
