//go:build linux && e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	podRestFor = 20 * time.Second
	// Limits of an idle pod with one peer: anonymous memory and the pod's cgroup, in bytes, and
	// the share of one core, which is higher on a busy machine.
	podAnonymous = 30 << 20
	podMemory    = 64 << 20
	podCPU       = 0.02
)

// testPodAtRest measures the gateways' pods.
func testPodAtRest(t *testing.T, c *clusters) {
	all := []*cluster{c.edge, c.cloud}
	var pids []int
	var before []time.Duration
	for _, one := range all {
		pid, _ := one.process(gatewayNamespace, release+"-0", "/postern")
		pids, before = append(pids, pid), append(before, cpuTime(t, pid))
	}
	start := time.Now()
	<-time.After(podRestFor)
	for i, one := range all {
		share := float64(cpuTime(t, pids[i])-before[i]) / float64(time.Since(start))
		_, used := one.process(gatewayNamespace, release+"-0", "/postern")
		anonymous := rssAnon(t, pids[i])
		t.Logf("%s: %.1f MB anonymous, %.1f MB by the pod's cgroup, %.2f %% of a core", one.name, mb(anonymous), mb(used), 100*share)
		if anonymous > podAnonymous || used > podMemory || share > podCPU*float64(slow()) {
			t.Errorf("%s: want at most %.0f MB, %.0f MB and %.0f %%", one.name, mb(podAnonymous), mb(podMemory), 100*podCPU)
		}
	}
}

// process finds the process of a program in a pod, and the pod's memory according to its cgroup,
// in bytes.
func (c *cluster) process(namespace, pod, program string) (pid, memory int) {
	c.t.Helper()
	uid := c.kubectl("get", "pod", "-n", namespace, pod, "-o", "jsonpath={.metadata.uid}")
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasSuffix(path, "pod"+uid) {
			return nil //nolint:nilerr // other cgroups come and go
		}
		for _, name := range []string{"memory.usage_in_bytes", "memory.current"} { // v1, v2
			if b, err := os.ReadFile(filepath.Join(path, name)); err == nil {
				memory = atoi(c.t, strings.TrimSpace(string(b)))
				pid = processBelow(path, program)
			}
		}
		return nil
	})
	if err != nil || pid == 0 || memory == 0 {
		c.t.Fatalf("%s: no process or memory of pod %s found below /sys/fs/cgroup: process %d, %d bytes, %v", c.name, uid, pid, memory, err)
	}
	return pid, memory
}

// processBelow finds the process of a program in a cgroup and those below.
func processBelow(cgroup, program string) int {
	found := 0
	lists, err := filepath.Glob(filepath.Join(cgroup, "*", "cgroup.procs"))
	if err != nil {
		return 0
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue // a container that has just ended
		}
		for field := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				continue
			}
			line, err := os.ReadFile(procFile(pid, "cmdline"))
			if err == nil && strings.HasPrefix(string(line), program+"\x00") {
				found = pid
			}
		}
	}
	return found
}
