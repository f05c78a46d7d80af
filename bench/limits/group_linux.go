package limits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Group limits the processes started in it and their descendants.
type Group struct {
	in      hierarchy
	folders []string

	closing sync.Once
	closed  chan struct{} // ends the threads that started processes
}

const (
	// label begins the names of groups, followed by the owner's process ID and a random suffix.
	label = "postern-bench-"
	// removeTime bounds the wait for a group's killed processes to end, which normally takes
	// milliseconds.
	removeTime = 20 * time.Second
	// removePoll is the pause between attempts to remove a group: the kernel removes a process
	// from its group shortly after reporting its end.
	removePoll = 10 * time.Millisecond
)

// New creates a group. The caller must close it.
func New(l Limits) (*Group, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, unavailable("%w", err)
	}
	h, err := findHierarchy(string(mounts))
	if err != nil {
		return nil, err
	}
	for _, dir := range h.left(running) {
		_ = h.empty(dir) // measure even if a stale group cannot be removed
	}
	return h.newGroup(l)
}

// Sweep removes the groups whose owners ended without closing them, and kills the processes in
// them. It is for programs that start such owners and may have to kill them.
func Sweep() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return unavailable("%w", err)
	}
	h, err := findHierarchy(string(mounts))
	if err != nil {
		return err
	}
	return (&Group{in: h, folders: h.left(running), closed: make(chan struct{})}).Close()
}

func (h hierarchy) newGroup(l Limits) (*Group, error) {
	chance := make([]byte, 4)
	if _, err := rand.Read(chance); err != nil {
		return nil, fmt.Errorf("name the group: %w", err)
	}
	made, err := h.create(fmt.Sprintf("%s%d-%x", label, os.Getpid(), chance), l)
	if err != nil {
		return nil, err
	}
	return &Group{in: h, folders: made, closed: make(chan struct{})}, nil
}

// running reports whether a process exists.
func running(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return err == nil
}

// left returns the groups whose owner has ended.
func (h hierarchy) left(running func(pid int) bool) []string {
	var out []string
	for _, mount := range h.mounts() {
		groups, err := filepath.Glob(filepath.Join(mount, label+"*"))
		if err != nil {
			continue
		}
		for _, dir := range groups {
			maker, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), label), "-")
			if pid, err := strconv.Atoi(maker); err == nil && pid > 0 && !running(pid) {
				out = append(out, dir)
			}
		}
	}
	return out
}

// Start starts cmd in the group.
func (g *Group) Start(cmd *exec.Cmd) error {
	if len(g.folders) == 0 { // no limits, with version 1
		return cmd.Start()
	}
	if g.in.unified == "" {
		return g.startByThread(cmd)
	}
	dir, err := os.Open(g.folders[0])
	if err != nil {
		return fmt.Errorf("start %s in its group: %w", cmd.Path, err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

// Inside returns the command line that runs args in the group, for programs that are started by
// other means.
func (g *Group) Inside(args ...string) []string {
	if len(g.folders) == 0 {
		return args
	}
	var files []string
	for _, dir := range g.folders {
		files = append(files, filepath.Join(dir, "cgroup.procs"))
	}
	return append([]string{"sh", "-c", "echo $$ | tee " + strings.Join(files, " ") + ` >/dev/null && exec "$@"`, "sh"}, args...)
}

// startByThread starts cmd with version 1. There a new process inherits the groups of the thread
// that forks it. So a thread joins the groups, starts cmd, and lives as long as the group: a
// Pdeathsig of cmd refers to this thread.
func (g *Group) startByThread(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		thread := syscall.Gettid()
		if thread == os.Getpid() {
			// The memory controller identifies the process with its first thread, which cannot
			// end.
			result <- g.startByThread(cmd)
			runtime.UnlockOSThread()
			return
		}
		for _, dir := range g.folders {
			if err := write(dir, setting{file: "tasks", value: strconv.Itoa(thread)}); err != nil {
				result <- fmt.Errorf("start %s in its group: %w", cmd.Path, missingRights(err))
				return
			}
		}
		result <- cmd.Start()
		<-g.closed
	}()
	return <-result
}

// Events returns what was counted so far.
func (g *Group) Events() Events {
	var e Events
	for _, dir := range g.folders {
		for _, s := range []struct {
			file, field string
			into        *uint64
		}{
			{"memory.max_usage_in_bytes", "", &e.Peak}, {"memory.peak", "", &e.Peak},
			{"memory.failcnt", "", &e.Reclaims}, {"memory.events", "max", &e.Reclaims},
			{"memory.oom_control", "oom_kill", &e.Kills}, {"memory.events", "oom_kill", &e.Kills},
			{"cpu.stat", "nr_periods", &e.Periods}, {"cpu.stat", "nr_throttled", &e.Throttled},
		} {
			if n, ok := read(filepath.Join(dir, s.file), s.field); ok {
				*s.into = n
			}
		}
	}
	return e
}

// read returns the number after a field's name, or the file's only number.
func read(file, field string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if field == "" {
			f = append([]string{""}, f...)
		}
		if len(f) == 2 && f[0] == field {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// Close kills the processes that still run in the group and removes it.
func (g *Group) Close() error {
	g.closing.Do(func() { close(g.closed) })
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	tick := time.NewTicker(removePoll)
	defer tick.Stop()
	for {
		var errs []error
		for _, dir := range g.folders {
			errs = append(errs, g.in.empty(dir))
		}
		err := errors.Join(errs...)
		if err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return err // without permission: another user's groups, such as those of root's killed runs
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("remove the group of a limited process: %w (its processes may hang in the kernel; remove the folder when they ended)", err)
		}
	}
}

// empty kills the processes of a group and tries to remove it. A missing group is no error.
func (h hierarchy) empty(dir string) error {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, word := range strings.Fields(string(procs)) {
		// A process outside this PID namespace is listed as 0, for which kill(2) would kill the
		// whole process group.
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	if err := h.rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
