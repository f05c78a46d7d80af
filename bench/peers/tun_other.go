//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/bench/peers/load"
)

// errNamespaces says what these subjects require.
var errNamespaces = errors.New("needs Linux, for network namespaces")

func newTUN(context.Context, load.Spec) (load.Ends, error) { return load.Ends{}, errNamespaces }

func newTUNWith(string) load.Subject { return newTUN }

func newProcesses(context.Context, load.Spec) (load.Ends, error) { return load.Ends{}, errNamespaces }
