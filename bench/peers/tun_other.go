//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/bench/peers/load"
)

// newTUN needs network namespaces.
func newTUN(context.Context, load.Spec) (load.Ends, error) {
	return load.Ends{}, errors.New("needs Linux, for network namespaces")
}
