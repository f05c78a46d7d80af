// Package limits runs a program with less processor time and memory than the machine has: in its
// own control group, like a container.
//
// # Control groups
//
// Version 2 has one hierarchy (cgroup-v2.rst in the kernel's documentation), version 1 has one
// for each controller (cgroup-v1/*.rst and scheduler/sched-bwc.rst). If both are mounted, memory
// and cpu belong to the version that lists them. Groups are created below the root of the
// hierarchy, which requires root. The name contains the owner's process ID. Removing a group
// kills the processes in it. Groups whose owner was killed are removed when the next one is
// created.
//
// Programs are started in their group instead of being moved there: the Go runtime determines its
// number of processors only at its start, and gateways their memory.
package limits

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits are the limits of a program; zero values mean none.
type Limits struct {
	// CPUs is the number of cores: 0.5 is half a core.
	CPUs float64
	// Memory is in bytes, including page cache and the kernel's socket buffers. Nothing is
	// swapped.
	Memory uint64
}

// Any reports whether there is any limit.
func (l Limits) Any() bool { return l.CPUs > 0 || l.Memory > 0 }

// String formats limits as "0.5 CPU, 64 MiB", or "no limits".
func (l Limits) String() string {
	var parts []string
	if l.CPUs > 0 {
		parts = append(parts, strconv.FormatFloat(l.CPUs, 'g', -1, 64)+" CPU")
	}
	if l.Memory > 0 {
		parts = append(parts, strconv.FormatFloat(float64(l.Memory)/(1<<20), 'g', -1, 64)+" MiB")
	}
	if len(parts) == 0 {
		return "no limits"
	}
	return strings.Join(parts, ", ")
}

// Accepted range: the kernel accepts no quota below 1 ms a period, and a Go program with a tunnel
// does not start with less memory.
const (
	leastCPUs   = 0.01
	mostCPUs    = 4096
	leastMemory = 16 << 20
)

// Check returns an error for limits that no run can keep.
func (l Limits) Check() error {
	if math.IsNaN(l.CPUs) || l.CPUs < 0 || l.CPUs > 0 && l.CPUs < leastCPUs || l.CPUs > mostCPUs {
		return fmt.Errorf("%g CPUs: want %g to %d, such as 0.5", l.CPUs, leastCPUs, mostCPUs)
	}
	if l.Memory > 0 && l.Memory < leastMemory || l.Memory > math.MaxInt64 {
		return fmt.Errorf("%d bytes of memory: want %d MiB or more, such as 64MiB", l.Memory, leastMemory>>20)
	}
	return nil
}

// units of memory as Kubernetes and Go write them.
var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1}, {"", 1},
}

// ParseMemory parses a size such as "64MiB", "64Mi", "64M" or a number of bytes.
func ParseMemory(text string) (uint64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(v) || v < 0 || v*u.bytes > math.MaxInt64 {
			break
		}
		return uint64(v * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is no amount of memory: want a number and a unit, such as 64MiB", text)
}

// Events are a group's counters; 0 where the kernel does not provide one.
type Events struct {
	// Peak is the peak memory use in bytes.
	Peak uint64
	// Reclaims is how often the limit was reached and the kernel had to reclaim memory. Kills is
	// the number of processes that it killed for lack of memory.
	Reclaims, Kills uint64
	// Periods is the number of scheduler periods (100 ms) in which something ran, Throttled the
	// number of those in which it was throttled.
	Periods, Throttled uint64
}

// ErrUnavailable says that processes cannot be limited here. Errors that wrap it say why, and
// what to do.
var ErrUnavailable = errors.New("processes cannot be limited here")

// unavailable wraps ErrUnavailable with the reason.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, fmt.Errorf(format, args...))
}
