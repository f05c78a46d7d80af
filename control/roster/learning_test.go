package roster

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// A peer that changes its key again and again has no more stored than one that keeps its key.
func TestAPeerThatChangesItsKeyStoresNoMoreOften(t *testing.T) {
	reg, now, stored := &Registry{}, time.Now(), 0
	for n := range byte(10) {
		m := &Member{Name: "edge", Keys: Keys{Key: peer.PublicKey{1, n}}}
		for range 2 * learnBurst {
			if reg.MayStore(m, now) {
				stored++
			}
		}
	}
	if stored != learnBurst {
		t.Errorf("stored %d times at once, want %d", stored, learnBurst)
	}
	if !reg.MayStore(&Member{Name: "berlin"}, now) {
		t.Error("another peer may store nothing")
	}
	if !reg.MayStore(&Member{Name: "edge"}, now.Add(RememberEvery)) {
		t.Error("nothing is stored later")
	}
}
