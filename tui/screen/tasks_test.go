package screen

import (
	"testing"
	"time"
)

// A suspended process finds all its timers expired at once.
func TestATickComesHoweverLateItIs(t *testing.T) {
	tasks := newTasks(t.Context())
	defer tasks.close()
	for range 1000 {
		if msg := tasks.after(time.Nanosecond, tickMsg{})(); msg != (tickMsg{}) {
			t.Fatalf("got %v, want a tick", msg)
		}
	}
}
