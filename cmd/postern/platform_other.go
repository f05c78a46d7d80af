//go:build !unix

package main

import (
	"os"
	"syscall"
)

// ofItsOwn returns nothing: there are no sessions.
func ofItsOwn() *syscall.SysProcAttr { return nil }

// unread returns false: it cannot be known before something is written.
func unread(*os.File) bool { return false }

// noFollow is no flag: these systems cannot refuse to open a symbolic link.
const noFollow = 0
