package load

import (
	"fmt"
	"time"
)

// answerTimeout is how long after the window the last answers may take.
const answerTimeout = time.Minute

// timetable says when something is due that is done again and again, by one goroutine.
type timetable struct {
	stop     *stop
	interval time.Duration // 0: when the one before is done.
	next     time.Time     // When the next one is due.
	start    time.Time     // From when the current one counts.
}

// wait waits until the next one is due, or returns false when none is any more. What is
// late because the one before took too long counts from when it was due, and is still due
// when that was before the end. What the timer wakes late counts from when it is awake:
// that lateness is not the subject's.
func (t *timetable) wait() bool {
	if t.interval == 0 {
		t.start = time.Now()
		return !t.stop.stopped()
	}
	t.start, t.next = t.next, t.next.Add(t.interval)
	early := time.Until(t.start)
	if early <= 0 {
		return !t.stop.stopped() || t.start.Before(t.stop.end)
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C:
		t.start = time.Now()
		return true
	case <-t.stop.done:
		return false
	}
}

// stop ends timetables.
type stop struct {
	end  time.Time // Is set before done is closed.
	done chan struct{}
}

func newStop() *stop { return &stop{done: make(chan struct{})} }

// at tells that nothing is due that was not due before end.
func (s *stop) at(end time.Time) {
	s.end = end
	close(s.done)
}

func (s *stop) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// await waits for what was begun in the window and has not ended.
func await(done <-chan struct{}, failed <-chan error, what string) error {
	limit := time.NewTimer(answerTimeout)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case err := <-failed:
		return err
	case <-limit.C:
		return fmt.Errorf("%s: no answer %s after the window", what, answerTimeout)
	}
}
