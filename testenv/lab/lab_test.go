package lab

import (
	"bytes"
	"flag"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
)

// patience bounds each step. It is for steps that hang, not for slow ones.
const patience = 8 * time.Minute

// TestMain runs more tests concurrently than there are processors: they mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// TestScenariosSucceed plays each scenario once: no step may fail, and no goroutine may leak.
// Without the build tag e2e it plays a few of each kind, for the race detector.
func TestScenariosSucceed(t *testing.T) {
	// Scenarios that wait until a path or a peer counts as lost, or until an identity expires, take
	// longest and need little processor time. Of the others, only a few run concurrently, so that no gateway reports a
	// slow machine.
	waiting := []string{"blocked-outbound", "blocked-inbound", "blocked-both", "name-moved", "duplicate-key", "wrong-key", "no-way-in", "relay-lost", "relay-in-use", "identity-expired"}
	working := make(chan struct{}, 3)
	for _, s := range played() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(waiting, s.Name) {
				working <- struct{}{}
				defer func() { <-working }()
			}
			ctx := t.Context()
			log := &record{}
			l, err := Build(ctx, Options{Version: "test", Scenario: s, StepLimit: patience, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			err = l.Run(ctx, Progress{End: func(s api.LabStep) { t.Logf("%-14s %6.2f s  %s", s.Name, s.Seconds, s.Detail) }})
			if err != nil {
				t.Errorf("%v\n%s", err, log)
			}
		})
	}
}

// record keeps the log for a scenario that fails.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}
