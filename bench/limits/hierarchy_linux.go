package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// asRoot is the advice for missing rights.
const asRoot = "run it as root, or limit everything together: systemd-run --user --scope -p CPUQuota=50% -p MemoryMax=64M postern bench run …"

// hierarchy says where control groups are mounted.
type hierarchy struct {
	folders
	// unified is the mount point of version 2; empty if version 1 is in use.
	unified string
	// cpu and memory are the mount points of version 1's controllers; empty if not mounted.
	cpu, memory string
}

// folders creates and removes groups. These are folders whose files the kernel creates and
// removes.
type folders interface {
	mkdir(dir string) error
	rmdir(dir string) error
}

// kernelFolders creates folders in a mounted hierarchy.
type kernelFolders struct{}

func (kernelFolders) mkdir(dir string) error { return os.Mkdir(dir, 0o755) }
func (kernelFolders) rmdir(dir string) error { return os.Remove(dir) }

// mounts returns the mount points of version 2, or of version 1's controllers.
func (h hierarchy) mounts() []string {
	return slices.DeleteFunc([]string{h.unified, h.cpu, h.memory}, func(at string) bool { return at == "" })
}

// findHierarchy parses a mount table (proc_pid_mounts(5)): device, mount point, type and options,
// separated by spaces.
func findHierarchy(mounts string) (hierarchy, error) {
	h := hierarchy{folders: kernelFolders{}}
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		at, options := f[1], strings.Split(f[3], ",")
		switch {
		case f[2] == "cgroup2" && h.unified == "":
			h.unified = at
		case f[2] == "cgroup" && slices.Contains(options, "cpu") && h.cpu == "":
			h.cpu = at
		case f[2] == "cgroup" && slices.Contains(options, "memory") && h.memory == "":
			h.memory = at
		}
	}
	switch {
	case h.cpu != "" || h.memory != "": // a controller is either in version 1 or in version 2
		h.unified = ""
	case h.unified == "":
		return hierarchy{}, unavailable("no control groups are mounted (mount -t cgroup2 none /sys/fs/cgroup)")
	}
	return h, nil
}

// setting is a file of a group and the value to write to it. The kernel may lack an optional one.
type setting struct {
	file, value string
	optional    bool
}

// period is the scheduler's quota period in microseconds: the default, which containers use.
const period = 100_000

// create creates a group with the limits and returns its folders: one for each controller with
// version 1. On an error it removes what it created.
func (h hierarchy) create(name string, l Limits) (made []string, err error) {
	plan := h.planV1
	if h.unified != "" {
		plan = h.planV2
	}
	groups, err := plan(l)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		dir := filepath.Join(g.mount, name)
		if err = h.mkdir(dir); err == nil {
			made = append(made, dir)
			err = setAll(dir, g.settings)
		}
		if err != nil {
			for _, dir := range made {
				err = errors.Join(err, h.rmdir(dir))
			}
			return nil, missingRights(err)
		}
	}
	return made, nil
}

// placed is a group's settings in one hierarchy.
type placed struct {
	mount    string
	settings []setting
}

func (h hierarchy) planV2(l Limits) ([]placed, error) {
	if err := h.enable(l); err != nil {
		return nil, err
	}
	var s []setting
	if l.CPUs > 0 {
		s = append(s, setting{"cpu.max", fmt.Sprintf("%d %d", quota(l), period), false})
	}
	if l.Memory > 0 {
		s = append(s, setting{"memory.max", fmt.Sprint(l.Memory), false}, setting{"memory.swap.max", "0", true})
	}
	return []placed{{h.unified, s}}, nil
}

func (h hierarchy) planV1(l Limits) (groups []placed, err error) {
	if l.CPUs > 0 {
		if h.cpu == "" {
			return nil, unavailable("the kernel's cpu controller is not mounted (mount -t cgroup -o cpu none DIRECTORY)")
		}
		groups = append(groups, placed{h.cpu, []setting{
			{"cpu.cfs_period_us", fmt.Sprint(period), false}, {"cpu.cfs_quota_us", fmt.Sprint(quota(l)), false},
		}})
	}
	if l.Memory > 0 {
		if h.memory == "" {
			return nil, errNoMemory()
		}
		// Memory and swap together cannot be less than memory alone, hence the order.
		groups = append(groups, placed{h.memory, []setting{
			{"memory.limit_in_bytes", fmt.Sprint(l.Memory), false}, {"memory.memsw.limit_in_bytes", fmt.Sprint(l.Memory), true},
		}})
	}
	return groups, nil
}

// quota returns the processor time for each period, in microseconds.
func quota(l Limits) int64 { return int64(l.CPUs * period) }

func errNoMemory() error {
	return unavailable("the kernel's memory controller is off (on a Raspberry Pi: add cgroup_enable=memory to /boot/firmware/cmdline.txt and restart)")
}

// enable makes the controllers available to the root's child groups (version 2).
func (h hierarchy) enable(l Limits) error {
	text, err := os.ReadFile(filepath.Join(h.unified, "cgroup.controllers"))
	if err != nil {
		return unavailable("%w", err)
	}
	enabled, err := os.ReadFile(filepath.Join(h.unified, "cgroup.subtree_control"))
	if err != nil {
		return unavailable("%w", err)
	}
	there, on := strings.Fields(string(text)), strings.Fields(string(enabled))
	var wanted []string
	if l.CPUs > 0 {
		wanted = append(wanted, "cpu")
	}
	if l.Memory > 0 {
		wanted = append(wanted, "memory")
	}
	for _, controller := range wanted {
		switch {
		case slices.Contains(on, controller):
			continue
		case !slices.Contains(there, controller) && controller == "memory":
			return errNoMemory()
		case !slices.Contains(there, controller):
			return unavailable("the kernel's %s controller is off, or kept by the host of this container (run it on the host)", controller)
		}
		if err := write(h.unified, setting{file: "cgroup.subtree_control", value: "+" + controller}); err != nil {
			return missingRights(err)
		}
	}
	return nil
}

func setAll(dir string, settings []setting) error {
	for _, s := range settings {
		if err := write(dir, s); err != nil {
			return err
		}
	}
	return nil
}

func write(dir string, s setting) error {
	f, err := os.OpenFile(filepath.Join(dir, s.file), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) && s.optional {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(s.value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set %s to %s: %w", s.file, s.value, err)
	}
	return nil
}

func missingRights(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return unavailable("%w (%s)", err, asRoot)
	}
	return unavailable("%w", err)
}
