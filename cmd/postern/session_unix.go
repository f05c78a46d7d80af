//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ofItsOwn makes a process one of a session of its own, which no terminal ends.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// unread reports whether nobody can read any more what is written to a pipe.
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

// noFollow has a symbolic link refused when a file is opened.
const noFollow = syscall.O_NOFOLLOW
