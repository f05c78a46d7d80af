//go:build linux && e2e

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// processKey distinguishes a process from a later one with the same id.
type processKey struct {
	pid   int
	start string // clock ticks since boot
}

// processStat is the part of /proc/PID/stat that tests need (proc_pid_stat(5)).
type processStat struct {
	processKey
	name   string
	parent int
	state  string
	rss    int // bytes
}

// processes lists the machine's processes.
func processes(t *testing.T) []processStat {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var all []processStat
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		fields := strings.Fields(string(b[end+1:])) // from field 3 on
		pid, err1 := strconv.Atoi(strings.TrimSpace(string(b[:open])))
		parent, err2 := strconv.Atoi(fields[1])
		pages, err3 := strconv.Atoi(fields[21])
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("unexpected %s: %q", path, b)
		}
		all = append(all, processStat{processKey: processKey{pid, fields[19]}, name: string(b[open+1 : end]),
			parent: parent, state: fields[0], rss: pages * os.Getpagesize()})
	}
	return all
}

// descendants returns the processes below this one, including a node's shims and containers,
// whose orphans the node's first process adopts.
func descendants(t *testing.T) []processStat {
	t.Helper()
	all := processes(t)
	found := map[int]bool{os.Getpid(): true}
	var below []processStat
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if found[p.parent] && !found[p.pid] {
				found[p.pid], grown = true, true
				below = append(below, p)
			}
		}
	}
	return below
}

// logMemory logs the memory of the clusters' processes: the sum of resident sizes, which counts
// the one program that most of them run each time, and the sum of proportional sizes, which
// counts it once.
func logMemory(t *testing.T) {
	t.Helper()
	sum, shares := 0, 0
	byName := map[string]int{}
	for _, p := range descendants(t) {
		sum += p.rss
		shares += proportional(p.pid)
		byName[p.name] += p.rss
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if mb := byName[name] >> 20; mb > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, mb))
		}
	}
	t.Logf("memory: %d MB resident, %d MB by proportional shares (resident: %s)", sum>>20, shares>>20, strings.Join(parts, ", "))
}

// proportional returns a process's proportional set size in bytes, 0 if it has ended
// (proc_pid_smaps(5)).
func proportional(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kb, _ := strconv.Atoi(f[1])
			return kb << 10
		}
	}
	return 0
}

// assertEnded fails for each of the processes that still runs. There must have been at least so
// many.
func assertEnded(t *testing.T, ps []processStat, least int) {
	t.Helper()
	if len(ps) < least {
		t.Errorf("the clusters had %d processes, want at least %d: the test doesn't see them", len(ps), least)
	}
	now := map[processKey]processStat{}
	for _, p := range processes(t) {
		now[p.processKey] = p
	}
	for _, p := range ps {
		// A zombie holds nothing; its parent, outside the cluster, will reap it.
		if q, ok := now[p.processKey]; ok && q.state != "Z" {
			t.Errorf("process %d (%s) still runs", p.pid, p.name)
		}
	}
}

// machine lists what clusters could leave behind, by kind. Mounts of other programs on the
// machine are left out.
func machine(t *testing.T) map[string][]string {
	t.Helper()
	m := map[string][]string{}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	places := append([]string{filepath.Join(os.TempDir(), t.Name())}, privateDirs...)
	for line := range strings.Lines(string(mounts)) {
		// Namespaces belong to the lab, which outlives the clusters.
		if slices.ContainsFunc(places, func(dir string) bool { return strings.Contains(line, " "+dir) }) && !strings.Contains(line, " /run/netns") {
			m["mounts"] = append(m["mounts"], line)
		}
	}
	for _, pattern := range []string{
		"/run/netns/cni-*", "/run/containerd/*", "/run/containerd/*/*", "/var/lib/cni/*", "/var/lib/cni/*/*",
		"/var/lib/containerd/*", "/var/lib/kubelet/*", "/var/lib/kubelet/*/*", "/var/log/containers/*", "/var/log/pods/*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		m[pattern] = found
	}
	for _, s := range kernelSettings {
		value, err := os.ReadFile("/proc/sys/" + s.name)
		if err != nil {
			t.Fatal(err)
		}
		m[s.name] = []string{string(value)}
	}
	return m
}

// assertUnchanged fails for what is new in after.
func assertUnchanged(t *testing.T, before, after map[string][]string) {
	t.Helper()
	for kind, things := range after {
		for _, thing := range things {
			if !slices.Contains(before[kind], thing) {
				t.Errorf("%s: %s is left behind", kind, thing)
			}
		}
	}
}

// cgroupsOf returns those of open nodes. Those of other tests' nodes come and go meanwhile.
func cgroupsOf(t *testing.T, open ...*Cluster) (dirs []string) {
	t.Helper()
	for _, c := range open {
		if len(c.node.cgroups) == 0 {
			t.Errorf("%s has no cgroup: the test doesn't see it", c.node.name)
		}
		dirs = append(dirs, c.node.cgroups...)
	}
	return dirs
}

// assertGone fails for each folder that still exists.
func assertGone(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left behind (%v)", dir, err)
		}
	}
}
