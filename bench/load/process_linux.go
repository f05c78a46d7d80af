package load

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processorTime returns what this process has used so far.
func processorTime() (user, system time.Duration) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// tick is the unit of times in /proc: USER_HZ is 100 on all Go platforms.
const tick = time.Second / 100

// processorTimeOf returns what another process has used so far, in whole ticks; zero if it has
// ended.
func processorTimeOf(pid int) (user, system time.Duration) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	return parseStat(b)
}

// parseStat returns the fields utime and stime, the 14th and 15th (proc_pid_stat(5)). The second
// field, the name in parentheses, may contain any characters.
func parseStat(b []byte) (user, system time.Duration) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 { // the first of them is the third field
		return 0, 0
	}
	u, errU := strconv.ParseUint(string(f[11]), 10, 32)
	s, errS := strconv.ParseUint(string(f[12]), 10, 32)
	if errU != nil || errS != nil {
		return 0, 0
	}
	return time.Duration(u) * tick, time.Duration(s) * tick
}

// memory returns that of this process.
func memory() usage { return memoryOf(os.Getpid()) }

// memoryOf reads /proc/PID/status (proc_pid_status(5)).
func memoryOf(pid int) usage {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}
	}
	return parseStatus(b)
}

// parseStatus returns VmHWM and RssAnon, which the kernel prints in kB of 1,024 bytes.
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
