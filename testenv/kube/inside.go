//go:build linux

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/testenv/netlab"
)

// node is the machine as the kubelet sees it: it has its own process, mount and network
// namespaces and cgroups. When the first process of the process namespace ends, all others end
// with it, including shims and containers, and with the last of them all mounts go. It ends with
// the test process at the latest.
type node struct {
	name    string
	init    int // process ID of the first process; 0 before it runs
	initFD  int // its pidfd
	cgroups []string
	dns     *dns // nil before it runs
}

// privateDirs are folders outside the cluster's own that kubelet, containerd and CNI plugins
// write to at fixed paths. On the node they are initially empty.
var privateDirs = []string{"/run", "/var/lib/kubelet", "/var/lib/cni", "/var/log/containers"}

// kernelSettings are the values that the kubelet requires of machine-wide sysctls. The node seems
// to have them; the machine's own are not changed.
var kernelSettings = []struct{ name, value string }{
	{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"},
	{"kernel/panic", "10"}, {"kernel/panic_on_oops", "1"},
	{"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
}

// setup returns the script of a node's first process, before it becomes the program pause.
func setup(dir, pause string) string {
	b := &strings.Builder{}
	b.WriteString("set -e\n")
	for _, d := range privateDirs {
		fmt.Fprintf(b, "mkdir -p %s\nmount -t tmpfs -o mode=755 tmpfs %s\n", d, d)
	}
	for _, s := range kernelSettings {
		file := filepath.Join(dir, strings.ReplaceAll(s.name, "/", "."))
		fmt.Fprintf(b, "echo %s > '%s'\nmount --bind '%s' /proc/sys/%s\n", s.value, file, file, s.name)
	}
	// The kubelet requires that its volumes propagate into containers.
	fmt.Fprintf(b, "mount --make-rshared /\necho %s\nexec '%s'\n", isolated, pause)
	return b.String()
}

// isolated is what the first process prints once the node's namespaces exist.
const isolated = "isolated"

// isolate creates the node's namespaces.
func (c *Cluster) isolate(ctx context.Context, pause string) error {
	dir := filepath.Join(c.options.Dir, "sysctl")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p, err := c.start("node", netlab.Command{Namespace: c.options.Namespace, Args: []string{
		"unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "private",
		"sh", "-c", setup(dir, pause),
	}})
	if err != nil {
		return err
	}
	if _, err := p.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, isolated) }); err != nil {
		return fmt.Errorf("make the node's namespaces: %w", err)
	}
	// unshare has one child, the first process of the new namespace.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.PID(), p.PID()))
	if err != nil {
		return fmt.Errorf("find the node's first process: %w", err)
	}
	if c.node.init, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
		return fmt.Errorf("find the node's first process: %w", err)
	}
	if c.node.initFD, err = unix.PidfdOpen(c.node.init, 0); err != nil {
		c.node.init = 0 // the process that started it kills it
		return fmt.Errorf("hold on to the node's first process: %w", err)
	}
	return nil
}

// inside returns the command line that runs args on the node.
func (n *node) inside(args ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(n.init), "--mount", "--pid", "--net", "--"}, args...)
}

// runInside starts a component on the node.
func (c *Cluster) runInside(name string, flags ...string) error {
	args := append([]string{filepath.Join(c.options.Assets, name)}, flags...)
	_, err := c.start(name, netlab.Command{Args: c.node.inside(args...)})
	return err
}

// kill ends every process on the node and waits until none is left. The kernel lets the first
// process of a namespace end only after all others (pid_namespaces(7)).
func (n *node) kill() error {
	if n.init == 0 {
		return nil
	}
	defer unix.Close(n.initFD)
	n.init = 0
	if err := unix.PidfdSendSignal(n.initFD, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end node %s: %w", n.name, err)
	}
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(n.initFD), Events: unix.POLLIN}}, int(endTimeout.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for the end of node %s: %w", n.name, err)
		case ended == 0:
			return fmt.Errorf("node %s: its processes still run %v after they were killed", n.name, endTimeout)
		}
		return nil
	}
}
