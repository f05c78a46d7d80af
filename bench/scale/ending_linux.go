package scale

import "syscall"

// ending has a process end with the one that started it.
func ending() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
