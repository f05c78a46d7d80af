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

// netnsDir contains the named namespaces of `ip netns`.
const netnsDir = "/run/netns"

// label is the common prefix of the names of all namespaces created here.
const label = "plab-"

// owner is the process that created a namespace. The start time (clock ticks since boot)
// distinguishes it from a later process with the same ID.
type owner struct {
	pid   int
	start uint64
}

// namePrefix returns the prefix of the names of the owner's namespaces.
func (o owner) namePrefix() string {
	return label + strconv.Itoa(o.pid) + "-" + strconv.FormatUint(o.start, 36) + "-"
}

// parseOwner parses the owner in a namespace's name; false for other namespaces.
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
	// The second field is the program's name in parentheses and may contain any characters. Field
	// 3 follows its last parenthesis. The start time is field 22 (proc_pid_stat(5)).
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

// sweep removes the namespaces of dead owners.
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

// namespaces lists the machine's named network namespaces.
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

// deleteNamespace removes a namespace. It is no error if another process has removed it.
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
