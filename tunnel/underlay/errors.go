package underlay

import "errors"

var (
	// ErrNoCandidates is returned by sends to a peer:ID endpoint without addresses.
	ErrNoCandidates = errors.New("no address is known to send to")
	// ErrNoRelay is returned by sends on an allocation that is gone.
	ErrNoRelay = errors.New("the relay's allocation is gone")
)
