package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Workloads are bulk streams and connections that carry a byte each way.
type Workloads struct {
	Streams     int     `json:"streams"`
	Connections float64 `json:"connectionsPerSecond"`
}

// callers is the number of goroutines that make the connections, in turn. A connection is only late
// if the one before it in the same goroutine takes longer than a whole turn.
const callers = 64

// workloads starts the workloads and returns. No connection is due after stop. The streams
// alternate in direction; the first one sends from the dialling end.
func (w *workers) workloads(ctx context.Context, spec Workloads, ends *Ends, stop *stop) (bulk counts, c *calls, err error) {
	if ends == nil {
		return nil, nil, errors.New("the subject has no ends for them")
	}
	if spec.Connections <= 0 {
		return nil, nil, fmt.Errorf("%g connections a second asked for; want more than 0", spec.Connections)
	}
	for i := range spec.Streams {
		n, err := w.stream(ctx, *ends, []string{Forward, Reverse}[i%2])
		if err != nil {
			return nil, nil, err
		}
		bulk = append(bulk, n...)
	}
	c = &calls{delays: newDelays(), ends: *ends}
	w.Go(func() { c.accept(w) })
	for i := range callers {
		t := timetable{stop: stop, interval: time.Duration(callers / spec.Connections * float64(time.Second))}
		t.next = time.Now().Add(t.interval * time.Duration(i) / callers)
		w.Go(func() {
			for t.wait() {
				if err := c.one(ctx, w); err != nil {
					w.fail("connection of a workload", err)
					return
				}
			}
		})
	}
	return bulk, c, nil
}
