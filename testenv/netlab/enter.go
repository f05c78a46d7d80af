//go:build linux

package netlab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs fn in a network namespace, on the calling goroutine's thread; "" means the current one.
// Sockets that fn opens stay in the namespace, so a test can listen, dial and send there without a
// helper process. Goroutines that fn starts run outside. fn must not start processes.
func Do(namespace string, fn func() error) error {
	if namespace == "" {
		return fn()
	}
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("remember the thread's network namespace: %w", err)
	}
	defer home.Close()
	target, err := os.Open(filepath.Join(netnsDir, namespace))
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", namespace, err)
	}
	fnErr := fn()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		// The goroutine stays locked to the thread, so the runtime ends the thread with the
		// goroutine instead of running others in the wrong namespace.
		return fmt.Errorf("leave network namespace %s: %w", namespace, err)
	}
	runtime.UnlockOSThread()
	return fnErr
}

// enter returns the command line that runs args in a namespace; "" means outside. nsenter execs
// the program, so the process ID is the program's. `ip netns exec` would remount /sys and hide
// the cgroup mounts.
func enter(namespace string, args []string) []string {
	if namespace == "" {
		return args
	}
	return append([]string{"nsenter", "--net=" + filepath.Join(netnsDir, namespace), "--"}, args...)
}
