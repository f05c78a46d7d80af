package tunnel

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// errorInterval is how often the same kind of device error is logged at most. Most of
// them repeat with every packet to a peer that cannot be reached.
const errorInterval = 10 * time.Second

// deviceLogger maps wireguard-go's two printf functions to slog: its chatter to debug,
// its errors to warnings, each kind at most every 10 s.
func deviceLogger(log *slog.Logger) *device.Logger {
	l := limiter{log: log, kinds: make(map[string]*kind)}
	return &device.Logger{
		Verbosef: func(format string, args ...any) {
			if log.Enabled(context.Background(), slog.LevelDebug) {
				log.Debug("wireguard", "detail", fmt.Sprintf(format, args...))
			}
		},
		Errorf: func(format string, args ...any) { l.warn(time.Now(), format, args...) },
	}
}

// limiter limits warnings by their format, of which the device has a few dozen.
type limiter struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	next       time.Time
	suppressed int
}

func (l *limiter) warn(now time.Time, format string, args ...any) {
	l.mu.Lock()
	k := l.kinds[format]
	if k == nil {
		k = new(kind)
		l.kinds[format] = k
	}
	if now.Before(k.next) {
		k.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := k.suppressed
	k.next, k.suppressed = now.Add(errorInterval), 0
	l.mu.Unlock()
	l.log.Warn("wireguard reports an error", "detail", fmt.Sprintf(format, args...), "suppressed", suppressed)
}
