package tunnel

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// counted returns readings of n peers, each of which takes a while, and their count.
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
		r, made := counted(alwaysRead)
		for range 5 {
			if _, err := r.recent(); err != nil {
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
			got, err := r.recent()
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(got.at); age > maxShared {
				t.Errorf("the counters are %v old, want at most %v", age, maxShared)
			}
		}
		if most := int(10*time.Second/maxShared) + 1; *made > most {
			t.Errorf("%d readings in 10 s, want at most %d", *made, most)
		}
		r.forget()
		before := *made
		if _, err := r.recent(); err != nil || *made != before+1 {
			t.Errorf("after peers have changed %d readings were made (%v), want 1", *made-before, err)
		}
	})
}

// A fresh reading contains nothing from before the request, however many callers request one.
func TestFreshReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const askers = 100
		r, made := counted(10_000)
		var all sync.WaitGroup
		for i := range askers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				asked := time.Now()
				got, err := r.fresh(nil)
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

// A caller that waits for a fresh reading does not block readers of the last one, nor a change of
// the peers. It stops when the tunnel closes.
func TestWaitingForAFreshReadingHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, made := counted(10_000)
		first, err := r.recent()
		if err != nil {
			t.Fatal(err)
		}
		closing, failed := make(chan struct{}), make(chan error)
		go func() {
			_, err := r.fresh(closing)
			failed <- err
		}()
		synctest.Wait() // it waits for the first to be old
		begin := time.Now()
		if got, err := r.recent(); err != nil || got.n != first.n {
			t.Errorf("got reading %d (%v), want the first, %d", got.n, err, first.n)
		}
		r.forget()
		if took := time.Since(begin); took != 0 {
			t.Errorf("a reading that serves and forgetting it took %v", took)
		}
		if got, err := r.recent(); err != nil || got.n == first.n || *made != 2 {
			t.Errorf("after forgetting, got reading %d (%v) of %d, want a second one", got.n, err, *made)
		}
		begin = time.Now()
		close(closing)
		if err := <-failed; !errors.Is(err, ErrClosed) || time.Since(begin) != 0 {
			t.Errorf("got %v %v after closing, want %v at once", err, time.Since(begin), ErrClosed)
		}
	})
}

// A reading that was begun before the peers changed is not used afterwards.
func TestAReadingFromBeforeAChangeIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, made := counted(10_000)
		before := make(chan reading)
		go func() {
			got, err := r.recent()
			if err != nil {
				t.Error(err)
			}
			before <- got
		}()
		synctest.Wait() // it is being made
		outdated := r.forget()
		after, err := r.recent()
		if err != nil {
			t.Fatal(err)
		}
		if got := <-before; got.n > outdated || after.n <= outdated || *made != 2 {
			t.Errorf("readings %d and %d of %d, want one up to %d and one later", got.n, after.n, *made, outdated)
		}
	})
}

// The counters of many peers are read less often, with no other readings in between, but often
// enough to notice silence in time.
func TestManyPeersAreReadLessOften(t *testing.T) {
	for peers, want := range map[int]time.Duration{1: time.Second, alwaysRead: time.Second, 516: 1500 * time.Millisecond, 1000: 1984 * time.Millisecond, 5000: 2 * time.Second} {
		if got := lookEvery(peers); got != want {
			t.Errorf("%d peers are looked at every %v, want %v", peers, got, want)
		}
		if lookEvery(peers) > silenceLimit/2 {
			t.Errorf("%d peers are looked at every %v, too seldom to notice silence after %v", peers, lookEvery(peers), silenceLimit)
		}
	}
	if own := patience * sharedFor(1000); own < lookEvery(1000) {
		t.Errorf("who looks at a thousand peers takes a reading of %v ago, but one is made only every %v", own, lookEvery(1000))
	}
}
