package catalogue

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Reason returns an error's text for a sentence that already says what was tried ([Params.Detail]):
// without the calls that it passed through, and without timeouts.
func Reason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ""
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return foreign.Err(err).Error()
}
