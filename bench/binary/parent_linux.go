package binary

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the process when the one that started it is gone, so
// that a run that is killed leaves no gateway.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
