package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace without a name. A thread holds it while it is open, and
// the sockets and devices that were made in it; so the kernel takes it away, with all that
// is in it, when the process ends, however that happens.
type namespace struct {
	file   *os.File // Of the namespace, to put devices into it.
	work   chan func()
	thread sync.WaitGroup
}

// newNamespace makes one, in which nothing is but a loopback interface that is down. It
// needs CAP_SYS_ADMIN.
func newNamespace() (*namespace, error) {
	n := &namespace{work: make(chan func())}
	made := make(chan error)
	n.thread.Go(func() {
		runtime.LockOSThread() // Not unlocked: the thread ends with the goroutine.
		err := n.enter()
		made <- err
		if err != nil {
			return
		}
		for f := range n.work {
			f()
		}
	})
	if err := <-made; err != nil {
		return nil, err
	}
	return n, nil
}

// enter moves the thread into a new namespace.
func (n *namespace) enter() error {
	err := unix.Unshare(unix.CLONE_NEWNET)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("make a network namespace: needs root: %w", err)
	}
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	if n.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	return nil
}

// in calls f in the namespace, and returns when f does. Sockets that f makes belong to the
// namespace for good, and can be used from anywhere.
func (n *namespace) in(f func()) {
	done := make(chan struct{})
	n.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// close lets go of the namespace. Nothing may be called in it any more.
func (n *namespace) close() error {
	close(n.work)
	n.thread.Wait()
	return n.file.Close()
}
