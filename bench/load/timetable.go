package load

import (
	"fmt"
	"time"
)

// answerTimeout bounds the wait for the last answers after the window.
const answerTimeout = time.Minute

// timetable says when an operation that one goroutine repeats is due next.
type timetable struct {
	stop     *stop
	interval time.Duration // 0: when the one before is done
	next     time.Time     // when the next one is due
	start    time.Time     // from when the current one counts
}

// wait waits until the next one is due; false after the last. If the one before took too long,
// the next counts from when it was due, and is still made if it was due before the end. If the
// timer is late, the next counts from when the timer fired: the subject did not cause that delay.
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
	end  time.Time // set before done is closed
	done chan struct{}
}

func newStop() *stop { return &stop{done: make(chan struct{})} }

// at ends the timetables: nothing is due from end on.
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

// await waits for the operations that began in the window.
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
