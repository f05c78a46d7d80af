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

// Group bounds the processes that are started in it, and theirs.
type Group struct {
	in      hierarchy
	folders []string

	closing sync.Once
	closed  chan struct{} // ends the threads that started processes
}

const (
	// label begins the names of groups; the maker's process and chance follow.
	label = "postern-bench-"
	// removeTime bounds the wait for the end of a group's processes, which are killed:
	// milliseconds unless the machine stands still.
	removeTime = 20 * time.Second
	// removePoll is the pause before another attempt: the kernel takes a process out of its
	// group a moment after its end was told.
	removePoll = 10 * time.Millisecond
)

// New makes a group. Whoever makes it closes it.
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
		_ = h.empty(dir) // One that cannot be removed is no reason not to measure.
	}
	return h.newGroup(l)
}

// Sweep removes the groups whose makers have ended without closing them, with what runs in
// them. It is for who starts such makers and may have to kill them.
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

// running reports whether a process is there.
func running(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return err == nil
}

// left are the groups whose maker has ended.
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

// Inside is the command line that runs args in the group, for who starts programs by other means.
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

// startByThread starts cmd with version 1, where a new process is in the groups of the
// thread that made it. So a thread joins them, makes it, and ends with the group: a
// Pdeathsig of cmd is about this thread.
func (g *Group) startByThread(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // For good: the thread ends with its goroutine.
		thread := syscall.Gettid()
		if thread == os.Getpid() {
			// To the memory controller the first thread is the process, and it cannot end.
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

// Events are what was counted so far.
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

// read takes the number behind a field's name, or the only one.
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

// Close kills what still runs in the group and removes it.
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
			return err // the latter are of someone else, such as root's killed runs
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("remove the group of a limited process: %w (its processes may hang in the kernel; remove the folder when they ended)", err)
		}
	}
}

// empty kills the processes of a group and tries to remove it. That it is gone is fine.
func (h hierarchy) empty(dir string) error {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, word := range strings.Fields(string(procs)) {
		// A process that this namespace does not see is 0, which kill(2) would take for all.
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	if err := h.rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
