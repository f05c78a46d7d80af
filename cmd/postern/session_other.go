//go:build !unix

package main

import "syscall"

// ofItsOwn makes a process one that goes on by itself.
func ofItsOwn() *syscall.SysProcAttr { return nil }
