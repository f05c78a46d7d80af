package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// labeller labels pods, or fails.
type labeller struct {
	mu  sync.Mutex
	err error
}

func (l *labeller) Mark(context.Context, bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *labeller) Unmark(context.Context, string) error { return nil }

func (l *labeller) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// Without the label no Service leads to the active pod. That is reported if the API server refuses it
// for good, and not while it does not answer.
func TestThatPodsCannotBeLabelledIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "postern-0",
			errors.New(`User "system:serviceaccount:postern:postern" cannot patch resource "pods" in API group "" in the namespace "postern"`))
		pods := &labeller{err: errors.New("connection refused")}
		var told []error
		b := newLabels(pods, slog.New(slog.DiscardHandler), func(err error) { told = append(told, err) })
		defer b.close()
		wait := func(what string, after time.Duration, want ...error) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if len(told) != len(want) || len(want) > 0 && !errors.Is(told[0], want[0]) {
				t.Errorf("%s: told %v, want %v", what, told, want)
			}
			told = nil
		}
		b.want(true, "")
		wait("no answer", time.Minute)
		pods.set(denied)
		wait("a right is missing", 5*labelSlowest, denied)
		wait("it is told once", 5*labelSlowest)
		pods.set(nil)
		wait("it is given", labelSlowest, nil)
	})
}
