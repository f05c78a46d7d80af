//go:build !linux

package limits

import "os/exec"

// Group limits the processes started in it. Only Linux has control groups.
type Group struct{}

// New returns an error that wraps [ErrUnavailable].
func New(Limits) (*Group, error) {
	return nil, unavailable("control groups are Linux's")
}

// Sweep returns an error that wraps [ErrUnavailable].
func Sweep() error { return unavailable("control groups are Linux's") }

// Start starts cmd without limits.
func (*Group) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Events returns the zero value.
func (*Group) Events() Events { return Events{} }

// Close does nothing.
func (*Group) Close() error { return nil }
