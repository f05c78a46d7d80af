package lease

import "time"

// timing holds the durations derived from a lease's; see the package comment.
type timing struct {
	duration   time.Duration
	renew      time.Duration // between two writes of the active replica
	retry      time.Duration // after a write without an answer
	request    time.Duration // for one request
	suspicion  time.Duration // without a write, after which to ask the API server
	look       time.Duration // between two such requests
	gap        time.Duration // silence of the API server after which counting restarts
	rewatch    time.Duration // between two attempts to watch
	reclaiming time.Duration // how long a superseded replica does not take the lease
}

func timed(d time.Duration) timing {
	return timing{
		duration: d, renew: d / 3, retry: d / 8, request: d / 4,
		suspicion: d/3 + d/12, look: d / 6, gap: d / 2, rewatch: d / 2, reclaiming: d,
	}
}

// silence counts how long a record has not changed while the API server answered. It has no clock.
type silence struct {
	timing
	// needed is how long it must be quiet.
	needed   time.Duration
	record   string
	quiet    time.Duration
	answered time.Time
}

// heard handles an answer of the API server with the current record.
func (v *silence) heard(now time.Time, record string) {
	since := now.Sub(v.answered)
	switch {
	case record != v.record || v.answered.IsZero() || since > v.gap:
		v.quiet = 0
	default:
		v.quiet += since
	}
	v.record, v.answered = record, now
}

// over reports whether the holder has had its time.
func (v *silence) over() bool { return v.quiet >= v.needed }

// next is when to ask the API server, if it reports nothing by itself.
func (v *silence) next(now time.Time) time.Time {
	if v.answered.IsZero() || now.Sub(v.answered) > v.gap {
		return now.Add(v.look)
	}
	end := v.answered.Add(v.needed - v.quiet)
	if v.quiet == 0 {
		return earlier(end, v.answered.Add(v.suspicion))
	}
	return earlier(end, v.answered.Add(v.look))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
