package portmap

import (
	"crypto/rand"
	"errors"
	"syscall"
)

// refusal says why the router's port does not answer.
func refusal(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "port 5351 of the router is closed"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the router cannot be reached"
	case errors.Is(err, syscall.EPERM):
		return "a firewall of this host forbids to ask the router"
	}
	return err.Error()
}

// isClosed reports whether a socket is of no more use: it was closed, or failed with an error
// that is not about a sent datagram.
func isClosed(err error) bool {
	var errno syscall.Errno
	return err != nil && !errors.As(err, &errno)
}

// randomSecret returns a secret for this process.
func randomSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}
