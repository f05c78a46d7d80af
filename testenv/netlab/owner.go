//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// netnsDir is where `ip netns` keeps its named namespaces.
const netnsDir = "/run/netns"

// label begins the name of every namespace made here.
const label = "plab-"

// owner is the process that made a namespace. The start time (clock ticks since boot)
// tells it from a later process with the same id.
type owner struct {
	pid   int
	start uint64
}

// namePrefix is how the names of the owner's namespaces begin.
func (o owner) namePrefix() string {
	return label + strconv.Itoa(o.pid) + "-" + strconv.FormatUint(o.start, 36) + "-"
}

// parseOwner reads the owner from a namespace's name; false for one not made here.
func parseOwner(namespace string) (owner, bool) {
	rest, ok := strings.CutPrefix(namespace, label)
	if !ok {
		return owner{}, false
	}
	pidText, rest, ok := strings.Cut(rest, "-")
	if !ok {
		return owner{}, false
	}
	startText, _, ok := strings.Cut(rest, "-")
	if !ok {
		return owner{}, false
	}
	pid, err := strconv.Atoi(pidText)
	if err != nil || pid <= 0 {
		return owner{}, false
	}
	start, err := strconv.ParseUint(startText, 36, 64)
	if err != nil {
		return owner{}, false
	}
	return owner{pid: pid, start: start}, true
}

// processOwner identifies a live process.
func processOwner(pid int) (owner, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return owner{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses and may hold anything;
	// what follows its last parenthesis begins with field 3. The start time is field
	// 22 (proc_pid_stat(5)).
	_, rest, ok := cutLast(string(b), ") ")
	fields := strings.Fields(rest)
	const startField = 22 - 3
	if !ok || len(fields) <= startField {
		return owner{}, fmt.Errorf("identify process %d: unexpected stat line %q", pid, b)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return owner{}, fmt.Errorf("identify process %d: start time: %w", pid, err)
	}
	return owner{pid: pid, start: start}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// alive reports whether the owner still runs.
func (o owner) alive() bool {
	now, err := processOwner(o.pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return err != nil || now == o // in doubt, leave its namespaces alone
}

// sweep removes the namespaces of owners that are gone.
func sweep() error {
	names, err := namespaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		o, ours := parseOwner(name)
		if !ours || o.alive() {
			continue
		}
		if err := deleteNamespace(name); err != nil {
			return err
		}
	}
	return nil
}

// namespaces lists the named network namespaces of the machine.
func namespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// deleteNamespace removes a namespace; that another process was faster is no failure.
func deleteNamespace(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	_, err := Run(ctx, "", "", "ip", "netns", "delete", name)
	if err == nil {
		return nil
	}
	if _, statErr := os.Stat(filepath.Join(netnsDir, name)); errors.Is(statErr, fs.ErrNotExist) {
		return nil
	}
	return err
}
