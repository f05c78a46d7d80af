package dnssd

import "errors"

var (
	// ErrRunning is returned by a second [Finder.Run].
	ErrRunning = errors.New("dns: the finder runs already")

	// errBogus is returned if the resolver found a wrong signature.
	errBogus = errors.New("DNSSEC validation failed")
	// errMessage is returned for a message that does not answer the question.
	errMessage = errors.New("no answer to the question")
)
