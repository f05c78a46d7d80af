package probe

import "errors"

// Errors, for errors.Is.
var (
	// ErrUnknownPeer is returned for a key that is not a peer's.
	ErrUnknownPeer = errors.New("not a peer")
	// ErrKey is returned for a key that cannot authenticate probes.
	ErrKey = errors.New("unusable key")
	// ErrSize is returned for a size that no probe can have.
	ErrSize = errors.New("probe size out of range")
)
