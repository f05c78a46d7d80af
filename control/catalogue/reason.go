package catalogue

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
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

// Exhausted reports whether this machine itself could not make a connection, for want of open files,
// memory or local ports (EADDRNOTAVAIL in connect(2)), so that nobody else was asked. Without IPv6
// the last is also the error for an IPv6 address.
func Exhausted(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) { // it has the text alone
		return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(e error) bool {
			return strings.HasSuffix(dns.Err, e.Error())
		})
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	case syscall.EADDRNOTAVAIL:
		if op, ok := errors.AsType[*net.OpError](err); ok {
			to, ok := op.Addr.(*net.TCPAddr)
			return ok && to.IP.To4() != nil
		}
	}
	return false
}
