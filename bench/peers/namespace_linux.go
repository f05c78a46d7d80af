package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// namespace is an unnamed network namespace. A thread keeps it alive while it is open, as do the
// sockets and devices made in it. So the kernel removes it and its contents when the process ends
// in any way.
type namespace struct {
	file   *os.File // of the namespace, to move devices into it
	work   chan func()
	thread sync.WaitGroup
}

// newNamespace creates a namespace that contains only a loopback interface, which is down. It
// needs CAP_SYS_ADMIN.
func newNamespace() (*namespace, error) {
	n := &namespace{work: make(chan func())}
	made := make(chan error)
	n.thread.Go(func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
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

// in calls f in the namespace and waits for it. Sockets that f makes stay in the namespace, and
// can be used from anywhere.
func (n *namespace) in(f func()) {
	done := make(chan struct{})
	n.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// close releases the namespace. in must not be called any more.
func (n *namespace) close() error {
	close(n.work)
	n.thread.Wait()
	return n.file.Close()
}
