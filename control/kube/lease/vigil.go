package lease

import "time"

// timing is what follows from the duration of a lease; see the package comment.
type timing struct {
	duration   time.Duration
	renew      time.Duration // between two writes of the active one
	retry      time.Duration // after one without an answer
	request    time.Duration // for one request
	suspicion  time.Duration // without a write, after which the API server is asked
	look       time.Duration // between two such questions
	gap        time.Duration // silence of the API server, after which nothing before it counts
	rewatch    time.Duration // between two attempts to watch
	reclaiming time.Duration // for which one that was superseded does not take the lease
}

func timed(d time.Duration) timing {
	return timing{
		duration: d, renew: d / 3, retry: d / 8, request: d / 4,
		suspicion: d/3 + d/12, look: d / 6, gap: d / 2, rewatch: d / 2, reclaiming: d,
	}
}

// vigil counts for how long a record has not changed while the API server answered. It
// keeps no clock.
type vigil struct {
	timing
	// needed is how long it has to be quiet.
	needed   time.Duration
	record   string
	quiet    time.Duration
	answered time.Time
}

// heard takes an answer of the API server: what the record is at that moment.
func (v *vigil) heard(now time.Time, record string) {
	since := now.Sub(v.answered)
	switch {
	case record != v.record || v.answered.IsZero() || since > v.gap:
		v.quiet = 0
	default:
		v.quiet += since
	}
	v.record, v.answered = record, now
}

// over: the holder has had its time.
func (v *vigil) over() bool { return v.quiet >= v.needed }

// next is when the API server should be asked, if it says nothing by itself.
func (v *vigil) next(now time.Time) time.Time {
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
