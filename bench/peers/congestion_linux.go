package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// available lists the kernel's congestion controls, without modules that it would load.
const available = "/proc/sys/net/ipv4/tcp_available_congestion_control"

// congestionControl is the kernel's name of a congestion control; empty means the kernel's
// default. It is set on sockets, and accepted sockets inherit the listener's. It is not set for
// the network namespace (net.ipv4.tcp_congestion_control), because there the kernel only accepts
// those allowed for the whole machine.
type congestionControl string

// set is a Control function of package net.
func (c congestionControl) set(network, _ string, conn syscall.RawConn) error {
	if c == "" || !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	if failed := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, string(c))
	}); failed != nil {
		return failed
	}
	if errors.Is(err, unix.ENOENT) {
		names, _ := os.ReadFile(available)
		return fmt.Errorf("the kernel has no congestion control %q, only %s", c, strings.TrimSpace(string(names)))
	}
	return os.NewSyscallError("setsockopt TCP_CONGESTION", err)
}
