//go:build linux

// Command pause is the first process of a test cluster's process namespaces. It keeps them open
// until it gets a signal to end, and reaps orphaned processes, as the first process must. It is
// the sandbox container of every pod, and the first process of every node.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap reads the exit codes of all children that have ended. One signal may stand for several of
// them.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
