// Package child has processes end with the one that started them, so that a benchmark
// that is killed leaves nothing running.
package child

import (
	"os/exec"
	"syscall"
)

// EndWithParent has the kernel kill cmd's process when the one that starts it is gone. It
// is called before cmd is started.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
