package mcs

import (
	"testing"
	"testing/synctest"
	"time"
)

// A change after a quiet time is handled almost at once, however long a turn takes. Constant
// changes are handled after a pause.
func TestAChangeAfterRestIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := time.NewTimer(time.Hour)
		rest := time.Now().Add(time.Hour)
		var s session
		after := func() time.Duration {
			begin, due := time.Now(), rest
			for range 3 { // changes that come together, and go off once
				due = s.soon(next, due)
			}
			<-next.C
			return time.Since(begin)
		}
		s.calm = time.Now().Add(maxCalm)
		if took := after(); took != maxCalm {
			t.Errorf("a change right after a long look is looked at after %v, want %v", took, maxCalm)
		}
		time.Sleep(maxCalm)
		if took := after(); took != gather {
			t.Errorf("a change after some rest is looked at after %v, want %v", took, gather)
		}
	})
}
