//go:build !linux

package limits

import "os/exec"

// Group bounds the processes that are started in it, where there are control groups.
type Group struct{}

// New says that there are none.
func New(Limits) (*Group, error) {
	return nil, unavailable("control groups are Linux's")
}

// Sweep says that there are none.
func Sweep() error { return unavailable("control groups are Linux's") }

// Start starts cmd as if there were no group.
func (*Group) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Events counts nothing.
func (*Group) Events() Events { return Events{} }

// Close does nothing.
func (*Group) Close() error { return nil }
