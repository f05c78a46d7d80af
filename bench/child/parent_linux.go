// Package child makes processes end with the process that started them, so that a killed
// benchmark leaves nothing running.
package child

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel kill cmd's process when its parent ends. Call it before starting
// cmd.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
