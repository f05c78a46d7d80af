package kube

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestSetLog(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 3} {
		var out bytes.Buffer
		SetLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		klog.Warning("of an API server")
		klog.ErrorS(errors.New("why"), "it failed", "key", "value")
		klog.Errorf("and %s", "more")
		if n := strings.Count(out.String(), "level=DEBUG"); n != want || strings.Count(out.String(), "\n") != want {
			t.Errorf("at level %v it logs %d records, want %d:\n%s", level, n, want, out.String())
		}
	}
}
