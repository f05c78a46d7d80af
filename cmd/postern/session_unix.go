//go:build unix

package main

import "syscall"

// ofItsOwn makes a process one of a session of its own, which no terminal ends.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// noFollow has a symbolic link refused when a file is opened.
const noFollow = syscall.O_NOFOLLOW
