package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/underlay"
)

// deviceLog maps wireguard-go's two printf functions to slog: its chatter to debug, its
// errors to warnings. They may come with every packet: how many are written is for the
// logger's handler to bound. The device does not wait for its workers when it is closed,
// and they log their end; after close they are not heard.
type deviceLog struct {
	log *slog.Logger

	mu     sync.RWMutex
	closed bool
}

func newDeviceLog(log *slog.Logger) *deviceLog { return &deviceLog{log: log} }

// logger is what the device takes.
func (l *deviceLog) logger() *device.Logger {
	return &device.Logger{
		Verbosef: l.debug,
		Errorf:   l.warn,
	}
}

// close returns when the last record has been written.
func (l *deviceLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *deviceLog) debug(format string, args ...any) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed || !l.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	l.log.Debug("wireguard", "detail", fmt.Sprintf(format, args...))
}

// noEndpoint is how wireguard-go words that it has no address to send to. For a peer that
// is to dial us this is no fault, and what sends to it (a check, a flow) reports it.
const noEndpoint = "no known endpoint for peer"

// noWay reports whether an error is that a peer cannot be sent to just now: without an
// address, over a relay's allocation that has ended, or while the network is down. Other
// parts tell of each once, and not for each packet.
func noWay(err error) bool {
	return err.Error() == noEndpoint || errors.Is(err, underlay.ErrNoCandidates) || errors.Is(err, underlay.ErrNoRelay) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
}

func (l *deviceLog) warn(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && noWay(err) {
			l.debug(format, args...)
			return
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return
	}
	l.log.Warn("wireguard reports an error", "detail", fmt.Sprintf(format, args...))
}
