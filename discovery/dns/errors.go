package dnssd

import "errors"

var (
	// ErrRunning is returned by a second [Finder.Run].
	ErrRunning = errors.New("dns: the finder runs already")

	// errBogus: the resolver found a signature to be wrong.
	errBogus = errors.New("DNSSEC validation failed")
	// errMessage: what came is no answer to what was asked.
	errMessage = errors.New("no answer to the question")
)
