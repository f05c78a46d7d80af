package lab

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDemonstrationSucceeds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l, err := Build(ctx, Options{Version: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.Run(ctx, func(s api.LabStep) { t.Logf("%-14s %.3f s  %s", s.Name, s.Seconds, s.Detail) }); err != nil {
		t.Fatal(err)
	}
}
