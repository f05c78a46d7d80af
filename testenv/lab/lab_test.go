package lab

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
)

// TestMain has more tests run at once than there are processors, unless told otherwise:
// most of the time they wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// TestEveryScenarioSucceeds plays each once: no step may fail, and nothing be left.
func TestEveryScenarioSucceeds(t *testing.T) {
	// Those that wait until a path counts as lost begin first: they take longest, and do
	// least meanwhile.
	long := []string{"blocked-outbound", "blocked-inbound", "blocked-both", "name-moved", "duplicate-key", "no-way-in", "relay-lost", "relay-in-use", "path-lost"}
	scenarios := Scenarios()
	slices.SortStableFunc(scenarios, func(a, b Scenario) int {
		return cmp.Compare(slices.Index(long, b.Name), slices.Index(long, a.Name))
	})
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			log := &record{}
			l, err := Build(ctx, Options{Version: "test", Scenario: s, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
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

// record keeps what was logged, for a scenario that fails.
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
