//go:build linux

package kube

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cgroupLabel is the prefix of the names of the nodes' cgroups. The name of the network namespace
// follows, which is unique among live nodes.
const cgroupLabel = "postern-kube-"

// endTimeout limits the wait for the end of a node's processes and cgroups, which takes
// milliseconds.
const endTimeout = 30 * time.Second

// makeCgroups creates the node's cgroup in every hierarchy (cgroup v2 has one, v1 one for each
// controller), after removing those of nodes whose network namespace is gone. It returns their
// folders.
func makeCgroups(namespace string) ([]string, error) {
	roots, err := cgroupRoots()
	if err != nil {
		return nil, err
	}
	var made []string
	for _, root := range roots {
		sweepCgroups(root)
		dir := filepath.Join(root, cgroupLabel+namespace)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return made, fmt.Errorf("make the node's cgroup: %w", err)
		}
		made = append(made, dir)
		// A new cpuset of v1 is empty, and no process can join it.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(root, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // another hierarchy, or v2's root, where empty means inherited
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), value, 0o644)
			}
			if err != nil {
				return made, fmt.Errorf("make the node's cgroup: %w", err)
			}
		}
	}
	return made, nil
}

// cgroupRoots returns where the hierarchies are mounted.
func cgroupRoots() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	var roots []string
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		// Device, mount point, type, options (proc_pid_mounts(5)).
		if f := strings.Fields(lines.Text()); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			roots = append(roots, f[1])
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("find the cgroup hierarchies: none is mounted, and a kubelet needs them")
	}
	return roots, nil
}

// sweepCgroups removes the cgroups that killed tests left in a hierarchy. Those that cannot be
// removed are in use, or harmless.
func sweepCgroups(root string) {
	left, err := filepath.Glob(filepath.Join(root, cgroupLabel+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		namespace := strings.TrimPrefix(filepath.Base(dir), cgroupLabel)
		if _, err := os.Stat(filepath.Join("/run/netns", namespace)); errors.Is(err, fs.ErrNotExist) {
			_ = removeCgroup(dir)
		}
	}
}

// removeCgroups removes the node's cgroups after its processes have ended.
func (n *node) removeCgroups() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	var errs []error
	for _, dir := range n.cgroups {
		errs = append(errs, retryRemove(ctx, dir))
	}
	return errors.Join(errs...)
}

// removePoll is the pause between attempts. The kernel takes a process out of its cgroup a moment
// after reporting its end, and v1 has no event for that.
const removePoll = 20 * time.Millisecond

func retryRemove(ctx context.Context, dir string) error {
	tick := time.NewTicker(removePoll)
	defer tick.Stop()
	for {
		err := removeCgroup(dir)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("remove the node's cgroup: %w", err)
		}
	}
}

// removeCgroup removes a cgroup and those below. Their files cannot and need not be removed.
func removeCgroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
