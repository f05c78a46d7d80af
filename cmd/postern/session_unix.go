//go:build unix

package main

import "syscall"

// ofItsOwn makes a process one of a session of its own, which no terminal ends.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
