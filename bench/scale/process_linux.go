package scale

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of processor times in /proc: USER_HZ is 100 on every Linux port of Go.
const clockTick = time.Second / 100

// Usage is a process's current memory and its processor time so far.
type Usage struct {
	// Anon is RssAnon and RSS is VmRSS, in bytes.
	Anon, RSS uint64
	// CPU is user and system time.
	CPU time.Duration
}

// usageOf reads a process's usage.
func usageOf(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read a process's memory: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read a process's time: %w", err)
	}
	u := parseStatus(status)
	if u.CPU, err = parseStat(stat); err != nil {
		return Usage{}, fmt.Errorf("time of process %d: %w", pid, err)
	}
	return u, nil
}

// threadTime returns the user and system time of the calling thread (RUSAGE_THREAD of
// getrusage(2)).
func threadTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0, fmt.Errorf("read a thread's time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// parseStatus parses the memory in proc_pid_status(5), in units of 1,024 bytes.
func parseStatus(text []byte) (u Usage) {
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "RssAnon":
			u.Anon = kib << 10
		case "VmRSS":
			u.RSS = kib << 10
		}
	}
	return u
}

// parseStat parses utime and stime in proc_pid_stat(5): fields 14 and 15. Field 2 is the
// program's name in parentheses and may contain any characters.
func parseStat(text []byte) (time.Duration, error) {
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q has no times", text)
	}
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}
