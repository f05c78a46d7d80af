package mcs

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What an API server refuses briefly, like a starting one, is tried again soon and not reported.
// What it keeps refusing is reported, and tried less and less often.
func TestARefusalIsToldWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writer{log: slog.New(slog.DiscardHandler), refused: map[id]refusal{}}
		web := id{importKind, "shop", "web"}
		refused := error(apierrors.NewForbidden(schema.GroupResource{Resource: importKind.resource}, "web", nil))
		try := func(err error) {
			if err := w.noted(web, func(context.Context) error { return err })(t.Context()); err != nil {
				t.Errorf("a refusal is tried again like a failure: %v", err)
			}
		}
		begin, tries := time.Now(), 0
		for ; len(w.problems()) == 0; tries++ {
			try(refused)
			if again := w.again(time.Now()); tries == 0 && again != firstRetry || again > refusedAgain {
				t.Fatalf("after %d tries the next is %v later", tries+1, again)
			}
			time.Sleep(w.again(time.Now()) - time.Nanosecond)
			if !w.waits(web) {
				t.Error("it is tried all the time")
			}
			if time.Sleep(time.Nanosecond); w.waits(web) {
				t.Error("it is not tried when it is time to")
			}
		}
		if took := time.Since(begin); took < refusedTold || took > 2*refusedTold || tries > 6 {
			t.Errorf("it is told after %v and %d tries", took, tries)
		}
		for range 10 {
			try(refused)
		}
		if again := w.again(time.Now()); again != refusedAgain {
			t.Errorf("the next try is %v later, want %v", again, refusedAgain)
		}
		if try(nil); len(w.problems()) > 0 || w.waits(web) {
			t.Errorf("it is told when it is over: %+v", w.problems())
		}
		if try(refused); w.again(time.Now()) != firstRetry {
			t.Errorf("another refusal is tried again after %v", w.again(time.Now()))
		}
		// What was due has been tried, whatever the result, and the mirrors report on a taken name:
		// neither causes constant reconciling.
		time.Sleep(firstRetry)
		db := id{importKind, "shop", "db"}
		if w.refuse(db, taken(db), 0); w.again(time.Now()) != refusedAgain {
			t.Errorf("a name that is taken is looked at again after %v", w.again(time.Now()))
		}
	})
}
