//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ofItsOwn returns the attributes of a process in a new session, which does not end with the
// terminal.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// unread reports whether a pipe has no reader any more.
func unread(f *os.File) bool {
	gone := false
	c, err := f.SyscallConn()
	if err == nil {
		err = c.Control(func(fd uintptr) {
			polled := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(polled, 0)
			gone = err == nil && n > 0 && polled[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		})
	}
	return err == nil && gone
}

// noFollow is a flag for opening files: opening a symbolic link fails.
const noFollow = syscall.O_NOFOLLOW
