package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/underlay"
)

func TestDeviceErrorsAreWarningsAtALimitedRate(t *testing.T) {
	var warnings, suppressed atomic.Int64
	l := newDeviceLog(slog.New(counting{&warnings, &suppressed}))
	for i := range 1000 {
		l.warn(t0.Add(time.Duration(i)*30*time.Millisecond), "%d failed", i) // 30 s
	}
	l.warn(t0, "another kind")
	if warnings.Load() != 3+1 || suppressed.Load() != 2*333 {
		t.Errorf("got %d warnings that tell of %d others, want 4 and 666", warnings.Load(), suppressed.Load())
	}
}

// counting is a slog.Handler that counts records and adds up what they suppressed.
type counting struct{ warnings, suppressed *atomic.Int64 }

func (c counting) Enabled(context.Context, slog.Level) bool { return true }
func (c counting) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c counting) WithGroup(string) slog.Handler            { return c }
func (c counting) Handle(_ context.Context, r slog.Record) error {
	c.warnings.Add(1)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "suppressed" {
			c.suppressed.Add(a.Value.Int64())
		}
		return true
	})
	return nil
}

func TestAPeerThatCannotBeSentToIsNoWarning(t *testing.T) {
	var out strings.Builder
	l := newDeviceLog(slog.New(slog.NewTextHandler(&out, nil)))
	unreachable := func(why syscall.Errno) error {
		return &net.OpError{Op: "write", Net: "udp", Err: os.NewSyscallError("sendmsg", why)}
	}
	for _, err := range []error{
		errors.New("no known endpoint for peer"),
		fmt.Errorf("peer: %w", underlay.ErrNoCandidates),
		fmt.Errorf("192.0.2.9:51820 via relay-1: %w", underlay.ErrNoRelay),
		unreachable(syscall.ENETUNREACH),
		errors.Join(unreachable(syscall.EHOSTUNREACH)),
	} {
		l.warn(time.Now(), "%v - Failed to send handshake initiation: %v", "peer", err)
		if out.Len() != 0 {
			t.Fatalf("%v was warned of: %s", err, &out)
		}
	}
	l.warn(time.Now(), "%v - Failed to send handshake initiation: %v", "peer", unreachable(syscall.EPERM))
	if !strings.Contains(out.String(), "not permitted") {
		t.Errorf("a failure to send was not warned of: %q", &out)
	}
}
