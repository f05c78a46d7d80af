package metrics

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Heartbeat detects a stopped loop: the loop calls Beat, /livez calls Check.
type Heartbeat struct {
	limit time.Duration
	start time.Time
	last  atomic.Int64 // nanoseconds since start, by the monotonic clock
}

// NewHeartbeat returns a heartbeat that counts as stopped after limit without a beat.
func NewHeartbeat(limit time.Duration) *Heartbeat {
	return &Heartbeat{limit: limit, start: time.Now()}
}

// Beat records that the loop is running.
func (h *Heartbeat) Beat() { h.last.Store(int64(time.Since(h.start))) }

// Check returns an error if the loop has stopped.
func (h *Heartbeat) Check() error {
	silent := time.Since(h.start) - time.Duration(h.last.Load())
	if silent > h.limit {
		return fmt.Errorf("the gateway's main loop has not turned for %s", silent.Round(time.Second))
	}
	return nil
}
