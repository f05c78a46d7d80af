package catalogue

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Reason is what an error adds to a sentence that has said what was tried ([Params.Detail]): neither
// the calls that it came through, nor that time was up.
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
