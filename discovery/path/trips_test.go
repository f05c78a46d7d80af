package path

import (
	"testing"
	"time"
)

func TestTripsAreCountedByTheirBounds(t *testing.T) {
	var trips Trips
	for _, rtt := range []time.Duration{500 * time.Microsecond, time.Millisecond, 30 * time.Millisecond, 2500 * time.Millisecond, time.Minute} {
		trips.add(rtt)
	}
	want := Trips{Within: [...]uint64{2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4}, Count: 5, Sum: time.Minute + 2531500*time.Microsecond}
	if trips != want {
		t.Errorf("got %+v, want %+v", trips, want)
	}
}
