//go:build !unix

package main

import (
	"os"
	"syscall"
)

// ofItsOwn makes a process one that goes on by itself.
func ofItsOwn() *syscall.SysProcAttr { return nil }

// unread is unknown before something is written.
func unread(*os.File) bool { return false }

// noFollow has a symbolic link refused when a file is opened, which these systems do not do.
const noFollow = 0
