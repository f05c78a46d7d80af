package tunnel

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tunnel/underlay"
)

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
		l.warn("%v - Failed to send handshake initiation: %v", "peer", err)
		if out.Len() != 0 {
			t.Fatalf("%v was warned of: %s", err, &out)
		}
	}
	l.warn("%v - Failed to send handshake initiation: %v", "peer", unreachable(syscall.EPERM))
	if !strings.Contains(out.String(), "not permitted") {
		t.Errorf("a failure to send was not warned of: %q", &out)
	}
}
