package netstack

import (
	"errors"
	"fmt"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// ErrNoAddress reports a destination or local address of a family for which the stack has no
// address, or a local address that is not the stack's.
var ErrNoAddress = errors.New("netstack: no overlay address of that family")

// ErrDecided reports an [Incoming] that was already accepted, refused or dropped.
var ErrDecided = errors.New("netstack: the connection request was already decided")

// sysError maps gVisor's errors to those of the net package, so that callers can use errors.Is with
// syscall's numbers. nil stays nil.
func sysError(err tcpip.Error) error {
	switch err.(type) {
	case nil:
		return nil
	case *tcpip.ErrConnectionRefused:
		return syscall.ECONNREFUSED
	case *tcpip.ErrConnectionReset:
		return syscall.ECONNRESET
	case *tcpip.ErrConnectionAborted, *tcpip.ErrAborted:
		return syscall.ECONNABORTED
	case *tcpip.ErrTimeout:
		return syscall.ETIMEDOUT
	case *tcpip.ErrNetworkUnreachable:
		return syscall.ENETUNREACH
	case *tcpip.ErrHostUnreachable, *tcpip.ErrHostDown, *tcpip.ErrNoNet:
		return syscall.EHOSTUNREACH
	case *tcpip.ErrPortInUse, *tcpip.ErrDuplicateAddress:
		return syscall.EADDRINUSE
	case *tcpip.ErrBadLocalAddress, *tcpip.ErrNoPortAvailable:
		return syscall.EADDRNOTAVAIL
	case *tcpip.ErrMessageTooLong:
		return syscall.EMSGSIZE
	case *tcpip.ErrNoBufferSpace:
		return syscall.ENOBUFS
	case *tcpip.ErrClosedForSend:
		return syscall.EPIPE
	case *tcpip.ErrNotConnected:
		return syscall.ENOTCONN
	case *tcpip.ErrInvalidEndpointState:
		return syscall.EINVAL
	default:
		return errors.New(err.String())
	}
}

// wrap names the failed step of a gVisor call; nil stays nil.
func wrap(step string, err tcpip.Error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("netstack: %s: %w", step, sysError(err))
}
