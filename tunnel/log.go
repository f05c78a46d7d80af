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

// deviceLog maps wireguard-go's two printf functions to slog: verbose messages to debug, errors to
// warnings. Both may come with every packet; the logger's handler limits them. The device does not
// wait for its workers when it closes, and they log their end, so messages after close are
// discarded.
type deviceLog struct {
	log *slog.Logger

	mu     sync.RWMutex
	closed bool
}

func newDeviceLog(log *slog.Logger) *deviceLog { return &deviceLog{log: log} }

// logger returns the device's logger.
func (l *deviceLog) logger() *device.Logger {
	return &device.Logger{
		Verbosef: l.debug,
		Errorf:   l.warn,
	}
}

// close returns once the last record has been written.
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

// noEndpoint is wireguard-go's message for having no address to send to. For a peer that is to dial
// us this is no fault, and the sender (a check, a flow) reports it.
const noEndpoint = "no known endpoint for peer"

// unreachable reports whether an error means that a peer cannot be sent to now: there is no
// address, the relay's allocation has ended, or the network is down. Other parts report each of
// these once, not for each packet.
func unreachable(err error) bool {
	return err.Error() == noEndpoint || errors.Is(err, underlay.ErrNoCandidates) || errors.Is(err, underlay.ErrNoRelay) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
}

func (l *deviceLog) warn(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && unreachable(err) {
			l.debug(format, args...)
			return
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return
	}
	l.log.Warn("wireguard error", "detail", fmt.Sprintf(format, args...))
}
