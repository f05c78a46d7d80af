//go:build linux && release

package package_test

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// machine is a Debian that has booted: systemd is its first process, and it has a network, processes,
// mounts and a control group of its own.
type machine struct {
	t *testing.T
	// first is the process ID of its systemd, as this machine counts.
	first string
	// halt ends every process of it, and waits for that.
	halt func()
}

// bootScript makes a root file system the machine's, and becomes its systemd. The kernel and its
// modules are not the machine's to load.
const bootScript = `set -e
mount --make-rprivate /
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for d in null zero full random urandom tty; do touch dev/$d; mount --bind /dev/$d dev/$d; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . mnt
umount -l /mnt
exec setpriv --bounding-set=-sys_module env -i container=other PATH="$1" NOTIFY_SOCKET=/ready /usr/lib/systemd/systemd`

const machinePath = "/usr/sbin:/usr/bin:/sbin:/bin"

// boot starts a machine until the test ends.
func boot(t *testing.T, root string) *machine {
	t.Helper()
	group, leave := controlGroup(t)
	defer group.Close()
	_ = os.Remove(root + "/ready") // of the boot before
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: root + "/ready", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts", "--ipc", "--net", //nolint:noctx // halt ends it
		"bash", "-c", bootScript, root, machinePath)
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGKILL}
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t}
	m.halt = sync.OnceFunc(func() {
		if first, err := strconv.Atoi(m.first); err == nil {
			_ = syscall.Kill(first, syscall.SIGKILL) // the kernel ends the others before it lets go of it
		} else {
			_ = c.Process.Kill()
		}
		_ = c.Wait()
		leave()
	})
	t.Cleanup(m.halt)
	if err := ready.SetReadDeadline(time.Now().Add(awhile)); err != nil {
		t.Fatal(err)
	}
	for message, b := "", make([]byte, 4096); !strings.Contains(message, "READY=1"); {
		n, err := ready.Read(b)
		if err != nil {
			t.Fatalf("the machine does not boot: %v", err)
		}
		message = string(b[:n])
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m.first = strings.TrimSpace(string(children))
	m.run("systemctl", "is-system-running")
	return m
}

// controlGroup makes one of the unified hierarchy for a machine's first process, and says how it is
// left when all that were in it have ended.
func controlGroup(t *testing.T) (group *os.File, leave func()) {
	t.Helper()
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(top + "/cgroup.procs"); err != nil {
		top += "/unified" // beside the hierarchies of version 1
	}
	dir, err := os.MkdirTemp(top, "postern-machine-")
	if err != nil {
		t.Fatal(err)
	}
	if group, err = os.Open(dir); err != nil {
		t.Fatal(err)
	}
	return group, func() {
		var all []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append([]string{path}, all...)
			}
			return nil
		})
		for _, d := range all {
			if err := syscall.Rmdir(d); err != nil {
				t.Errorf("the control group %s stays: %v", d, err)
			}
		}
	}
}

// command is one of root's on the machine.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", m.first, "--all", "--root", "--wd",
		"env", "-i", "TERM=dumb", "LANG=C.UTF-8", "PATH=" + machinePath}, args...)...)
}

// run gives what a command prints.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	return run(m.t, "/", m.command(m.t.Context(), args...).Args...)
}
