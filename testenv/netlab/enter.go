//go:build linux

package netlab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs fn with the calling goroutine's thread inside a named network namespace; ""
// stays where it is. Sockets that fn itself opens (not goroutines it starts) belong to
// the namespace for as long as they live, so a test can listen, dial and send from
// inside without a helper process. fn must not start processes.
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
		// The goroutine stays locked to the thread, so the runtime ends the thread
		// with the goroutine instead of running others in the wrong namespace.
		return fmt.Errorf("leave network namespace %s: %w", namespace, err)
	}
	runtime.UnlockOSThread()
	return fnErr
}

// enter is the command line that runs args inside a namespace; "" stays outside.
// nsenter replaces itself by the program, so the process id is the program's. `ip netns
// exec` would do too, but remounts /sys and hides the cgroup mounts.
func enter(namespace string, args []string) []string {
	if namespace == "" {
		return args
	}
	return append([]string{"nsenter", "--net=" + filepath.Join(netnsDir, namespace), "--"}, args...)
}
