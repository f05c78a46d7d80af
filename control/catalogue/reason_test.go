package catalogue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestReasonsAreWithoutCalls(t *testing.T) {
	dial := func(err error) error {
		return fmt.Errorf("netstack: dial: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)})
	}
	for want, err := range map[string]error{
		"connection refused":             dial(syscall.ECONNREFUSED),
		"address already in use":         dial(syscall.EADDRINUSE),
		"":                               fmt.Errorf("netstack: ping: %w", context.DeadlineExceeded),
		"lookup a.example: no such host": &net.DNSError{Err: "no such host", Name: "a.example", IsNotFound: true},
		"it is \ufffd[2Jbad":             errors.New("it is \x1b[2Jbad"),
	} {
		if got := Reason(err); got != want {
			t.Errorf("of %v: got %q, want %q", err, got, want)
		}
	}
}
