package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mountsV1 = `tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
`
	mountsV2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,memory_recursiveprot 0 0\n"
)

func TestWhichVersionIsInUse(t *testing.T) {
	for _, c := range []struct {
		name, mounts, want string
	}{
		{"version 2", mountsV2, "/sys/fs/cgroup||"},
		{"version 1, and a version 2 without controllers beside it", mountsV1, "|/sys/fs/cgroup/cpu,cpuacct|/sys/fs/cgroup/memory"},
		{"version 1 without the memory controller", "cgroup /c/cpu cgroup rw,cpu 0 0\n", "|/c/cpu|"},
	} {
		h, err := findHierarchy(c.mounts)
		if got := h.unified + "|" + h.cpu + "|" + h.memory; err != nil || got != c.want {
			t.Errorf("%s: got %s and %v, want %s", c.name, got, err, c.want)
		}
	}
	if _, err := findHierarchy("proc /proc proc rw 0 0\n"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("no control groups: got %v, want %v", err, ErrUnavailable)
	}
}

// fakeFolders creates a new group's files as the kernel would, and removes them.
type fakeFolders struct{ files []string }

func (f fakeFolders) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range f.files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (f fakeFolders) rmdir(dir string) error { return os.RemoveAll(dir) }

// fakeV2 returns a hierarchy of version 2 with these controllers.
func fakeV2(t *testing.T, controllers string) hierarchy {
	t.Helper()
	root := t.TempDir()
	put(t, root, "cgroup.controllers", controllers)
	put(t, root, "cgroup.subtree_control", "pids")
	return hierarchy{unified: root, folders: fakeFolders{[]string{"cgroup.procs", "cpu.max", "memory.max", "memory.swap.max"}}}
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != value {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, value)
		}
	}
}

func TestVersion2(t *testing.T) {
	h := fakeV2(t, "cpuset cpu io memory pids")
	g, err := h.newGroup(Limits{CPUs: 0.5, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.folders) != 1 || !strings.HasPrefix(filepath.Base(g.folders[0]), fmt.Sprintf("postern-bench-%d-", os.Getpid())) {
		t.Fatalf("got %v, want one folder named after this process", g.folders)
	}
	dir := g.folders[0]
	wantFiles(t, dir, map[string]string{"cpu.max": "50000 100000", "memory.max": "67108864", "memory.swap.max": "0"})
	control, err := os.ReadFile(filepath.Join(h.unified, "cgroup.subtree_control"))
	if err != nil || string(control) != "+memory" { // the kernel's file accumulates them; this one has the last
		t.Errorf("subtree_control: got %q and %v, want the controllers switched on, memory last", control, err)
	}

	put(t, dir, "memory.peak", "67000000\n")
	put(t, dir, "memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
	put(t, dir, "cpu.stat", "usage_usec 1\nnr_periods 30\nnr_throttled 20\n")
	if got, want := g.Events(), (Events{Peak: 67e6, Reclaims: 7, Kills: 2, Periods: 30, Throttled: 20}); got != want {
		t.Errorf("events: got %+v, want %+v", got, want)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: got %v, want the folder gone", err)
	}
}

func TestVersion1(t *testing.T) {
	h := hierarchy{cpu: t.TempDir(), memory: t.TempDir(), folders: fakeFolders{[]string{
		"cgroup.procs", "tasks", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes",
	}}}
	g, err := h.newGroup(Limits{CPUs: 0.5, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.folders) != 2 {
		t.Fatalf("got %v, want a folder for each controller", g.folders)
	}
	wantFiles(t, g.folders[0], map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"})
	wantFiles(t, g.folders[1], map[string]string{"memory.limit_in_bytes": "67108864"})
	put(t, g.folders[0], "cpu.stat", "nr_periods 3\nnr_throttled 2\n")
	put(t, g.folders[1], "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
	put(t, g.folders[1], "memory.failcnt", "9\n")
	put(t, g.folders[1], "memory.max_usage_in_bytes", "67108864\n")
	if got, want := g.Events(), (Events{Peak: 64 << 20, Reclaims: 9, Kills: 1, Periods: 3, Throttled: 2}); got != want {
		t.Errorf("events: got %+v, want %+v", got, want)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, root := range h.mounts() {
		if left, _ := filepath.Glob(filepath.Join(root, label+"*")); len(left) > 0 {
			t.Errorf("after Close: %v is left", left)
		}
	}
}

func TestWhatLacksIsSaid(t *testing.T) {
	for _, c := range []struct {
		name   string
		in     hierarchy
		limits Limits
		want   string
	}{
		{"version 2 without the memory controller", fakeV2(t, "cpu pids"), Limits{Memory: 64 << 20}, "cgroup_enable=memory"},
		{"version 2 without the cpu controller", fakeV2(t, "pids"), Limits{CPUs: 1}, "cpu controller is off"},
		{"version 1 without the memory controller", hierarchy{cpu: t.TempDir()}, Limits{Memory: 64 << 20}, "cgroup_enable=memory"},
		{"version 1 without the cpu controller", hierarchy{memory: t.TempDir()}, Limits{CPUs: 1}, "cpu controller is not mounted"},
		{"no rights", hierarchy{cpu: t.TempDir(), folders: deniedFolders{}}, Limits{CPUs: 1}, "run it as root"},
	} {
		_, err := c.in.newGroup(c.limits)
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want one of %q with %q", c.name, err, ErrUnavailable, c.want)
		}
	}
}

// deniedFolders fails for lack of permission.
type deniedFolders struct{ fakeFolders }

func (deniedFolders) mkdir(dir string) error {
	return &os.PathError{Op: "mkdir", Path: dir, Err: os.ErrPermission}
}

func TestAGroupThatCannotBeSetIsNotLeft(t *testing.T) {
	root := t.TempDir()
	h := hierarchy{cpu: root, folders: fakeFolders{[]string{"cgroup.procs"}}} // no file for the quota
	if _, err := h.newGroup(Limits{CPUs: 1}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestGroupsOfKilledMakersAreSwept(t *testing.T) {
	root := t.TempDir()
	h := hierarchy{unified: root, folders: fakeFolders{[]string{"cgroup.procs"}}}
	for _, name := range []string{"postern-bench-41-aa", "postern-bench-42-bb", "postern-bench-x", "other-41-cc"} {
		if err := h.mkdir(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	g := &Group{in: h, folders: h.left(func(pid int) bool { return pid == 42 }), closed: make(chan struct{})}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if got, want := strings.Join(left, " "), "other-41-cc postern-bench-42-bb postern-bench-x"; got != want {
		t.Errorf("left: got %s, want %s", got, want)
	}
}
