package netstack

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	gvlog "gvisor.dev/gvisor/pkg/log"
)

// SetLog sends what gVisor logs to a log, at level debug. Without it, it goes to stderr, some of it
// whenever a peer wants. There is one log for all stacks of the process: set it before the first.
func SetLog(log *slog.Logger) { gvlog.SetTarget(emitter{log}) }

type emitter struct{ log *slog.Logger }

// Emit implements gVisor's log.Emitter.
func (e emitter) Emit(_ int, _ gvlog.Level, _ time.Time, format string, args ...any) {
	if ctx := context.Background(); e.log.Enabled(ctx, slog.LevelDebug) {
		e.log.DebugContext(ctx, "gvisor", "text", fmt.Sprintf(format, args...))
	}
}
