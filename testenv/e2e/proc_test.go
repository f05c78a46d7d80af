//go:build linux && e2e

package e2e

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// procFile returns the path of a file about a process.
func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// rssAnon returns the anonymous resident memory of a process in bytes: what it has allocated,
// without the program file.
func rssAnon(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	n := parseRssAnon(b)
	if n == 0 {
		t.Fatalf("no RssAnon in the status of process %d:\n%s", pid, b)
	}
	return n
}

// parseRssAnon returns the field of proc_pid_status(5), in bytes; 0 if it is missing.
func parseRssAnon(status []byte) int {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kB, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				return 0
			}
			return kB << 10
		}
	}
	return 0
}

// smallPages reports whether transparent huge pages are disabled for a process.
func smallPages(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), "\nTHP_enabled:\t0\n")
}

// clockTick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux port that Go
// supports.
const clockTick = time.Second / 100

// cpuTime returns the CPU time of a process, in user and kernel mode.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, used := parseStat(t, string(b))
	return used
}

// processorTimes returns the CPU times of all running processes, by program name.
func processorTimes(t *testing.T) map[string]time.Duration {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]time.Duration{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		program, d := parseStat(t, string(b))
		if !strings.HasPrefix(program, "kworker/") { // they change their names
			used[program] += d
		}
	}
	return used
}

// parseStat returns the program's name and its CPU time, in user and kernel mode, from
// proc_pid_stat(5).
func parseStat(t *testing.T, stat string) (program string, used time.Duration) {
	t.Helper()
	// The name, in parentheses, is field 2; utime and stime are 14 and 15.
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	return stat[open+1 : end], time.Duration(atoi(t, fields[14-3])+atoi(t, fields[15-3])) * clockTick
}

// contextSwitches returns how often the threads of a process have given up a processor,
// voluntarily or not.
func contextSwitches(t *testing.T, pid int) int {
	t.Helper()
	statuses, err := filepath.Glob(procFile(pid, "task/*/status"))
	if err != nil || len(statuses) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	n := 0
	for _, name := range statuses {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // a thread that has just ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if _, count, ok := strings.Cut(line, "voluntary_ctxt_switches:"); ok {
				n += atoi(t, strings.TrimSpace(count))
			}
		}
	}
	return n
}

// sockets returns the local addresses of sockets in the given state in a process's network
// namespace, from one of the tables of /proc/PID/net (tcp, tcp6, udp, udp6). State 0A is TCP
// LISTEN, 07 an unconnected UDP socket.
func sockets(t *testing.T, pid int, table, state string) []netip.AddrPort {
	t.Helper()
	f, err := os.Open(procFile(pid, "net/"+table))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var found []netip.AddrPort
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[0] == "sl" || fields[3] != state {
			continue
		}
		found = append(found, parseSocket(t, fields[1]))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// parseSocket parses the kernel's form of an address: hexadecimal 32-bit words in the machine's
// (little-endian) order, and the port.
func parseSocket(t *testing.T, s string) netip.AddrPort {
	t.Helper()
	addrText, portText, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(addrText)
	if err != nil || len(b)%4 != 0 {
		t.Fatalf("socket address %q: %v", s, err)
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(b)
	port, err := strconv.ParseUint(portText, 16, 16)
	if !ok || err != nil {
		t.Fatalf("socket address %q: %v", s, err)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port))
}
