//go:build !linux

package scale

import "syscall"

// ending cannot be had here.
func ending() *syscall.SysProcAttr { return nil }
