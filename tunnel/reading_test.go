package tunnel

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// counted makes readings of n peers, which take a while, and counts them.
func counted(n int) (*readings, *int) {
	made := new(int)
	return newReadings(func() (uapi.Device, error) {
		*made++
		time.Sleep(time.Millisecond)
		return uapi.Device{Peers: make([]uapi.Peer, n)}, nil
	}, func() underlay.Observations { return underlay.Observations{} }), made
}

func TestReadingsOfFewPeersAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, made := counted(readAnew)
		for range 5 {
			if _, err := r.lately(); err != nil {
				t.Fatal(err)
			}
		}
		if *made != 5 {
			t.Errorf("five times asked, %d readings were made", *made)
		}
	})
}

func TestReadingsOfManyPeersServeForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, made := counted(10_000)
		for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			got, err := r.lately()
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(got.at); age > greatestAge {
				t.Errorf("the counters are %v old, want at most %v", age, greatestAge)
			}
		}
		if most := int(10*time.Second/greatestAge) + 1; *made > most {
			t.Errorf("%d readings in 10 s, want at most %d", *made, most)
		}
		r.forget()
		before := *made
		if _, err := r.lately(); err != nil || *made != before+1 {
			t.Errorf("after peers have changed %d readings were made (%v), want 1", *made-before, err)
		}
	})
}

// Whoever asks what was seen gets nothing from before the question, however many ask.
func TestFreshReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const askers = 100
		r, made := counted(10_000)
		var all sync.WaitGroup
		for i := range askers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				asked := time.Now()
				got, err := r.fresh()
				switch {
				case err != nil:
					t.Error(err)
				case got.at.Before(asked):
					t.Errorf("what is fresh was read %v before it was asked for", asked.Sub(got.at))
				case got.seen == nil:
					t.Error("what is fresh lacks what was seen")
				}
			})
		}
		all.Wait()
		if *made > 3 {
			t.Errorf("%d readings for %d that asked within 300 ms, want at most 3", *made, askers)
		}
	})
}
