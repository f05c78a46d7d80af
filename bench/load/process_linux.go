package load

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processorTime is what this process has used so far.
func processorTime() (user, system time.Duration) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// memory reads /proc/self/status (proc_pid_status(5)).
func memory() usage {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return usage{}
	}
	return parseStatus(b)
}

// parseStatus finds VmHWM and RssAnon, which the kernel gives in kB of 1,024 bytes.
func parseStatus(b []byte) usage {
	var u usage
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), ":")
		if !ok || name != "VmHWM" && name != "RssAnon" {
			continue
		}
		kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			continue
		}
		if name == "VmHWM" {
			u.peak = kb << 10
		} else {
			u.anon = kb << 10
		}
	}
	return u
}
