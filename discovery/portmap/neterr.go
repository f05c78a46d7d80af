package portmap

import (
	"crypto/rand"
	"errors"
	"syscall"
)

// refusal says in words why the router's port cannot be talked to.
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

// isClosed reports whether a socket gives nothing more: it was closed, or fails with what is
// not the system's report of a datagram that was sent.
func isClosed(err error) bool {
	var errno syscall.Errno
	return err != nil && !errors.As(err, &errno)
}

// randomSecret is one that lasts as long as the process.
func randomSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // It never fails (crypto/rand).
	return b
}
