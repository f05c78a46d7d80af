package underlay

import "errors"

var (
	// ErrNoCandidates is what sending to a peer:ID endpoint without addresses gives.
	ErrNoCandidates = errors.New("no address is known to send to")
	// ErrNoRelay is what sending over an allocation that is gone gives.
	ErrNoRelay = errors.New("the relay's allocation is gone")
)
