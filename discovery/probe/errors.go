package probe

import "errors"

// Errors, to be compared with errors.Is.
var (
	// ErrUnknownPeer reports a key that is not among the peers.
	ErrUnknownPeer = errors.New("not a peer")
	// ErrKey reports a key that no probe can be authenticated with.
	ErrKey = errors.New("unusable key")
	// ErrSize reports a size that no probe can have.
	ErrSize = errors.New("probe size out of range")
)
