// Package limits runs a program with less processor time and memory than the machine
// has: in a control group of its own, as a container's.
//
// # What it stands on
//
// Version 2 of control groups has one hierarchy (cgroup-v2.rst in the kernel's
// documentation), version 1 one for each controller (cgroup-v1/*.rst and
// scheduler/sched-bwc.rst); where both are mounted, memory and cpu are of the version that
// lists them. A group is made below the root of the hierarchy, which needs root, with a name that holds the
// process that made it. It is removed with whatever still runs in it; one whose maker was
// killed is removed by the next.
//
// A program is started inside its group, not moved there, because the Go runtime looks for
// its processors once, when it starts, and so do gateways for their memory.
package limits

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits bound a program; zero values bound nothing.
type Limits struct {
	// CPUs is processor time per time: 0.5 is half a core's.
	CPUs float64
	// Memory is in bytes, page cache and the kernel's socket buffers included. What is
	// over it is not swapped.
	Memory uint64
}

// Any reports whether something is bounded.
func (l Limits) Any() bool { return l.CPUs > 0 || l.Memory > 0 }

// String is "0.5 CPU, 64 MiB", and "no limits".
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

// Bounds of what is accepted: the kernel takes no quota below 1 ms a period, and a Go
// program with a tunnel does not start in less memory.
const (
	leastCPUs   = 0.01
	mostCPUs    = 4096
	leastMemory = 16 << 20
)

// Check refuses limits that no run can keep.
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

// ParseMemory reads a size such as "64MiB", "64Mi", "64M" or a number of bytes.
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

// Events are what a group counted since it was made; 0 also where the kernel does not say.
type Events struct {
	// Peak is the most memory that was in use, in bytes.
	Peak uint64
	// Reclaims is how often the limit was reached and the kernel had to find memory, Kills
	// how many processes it ended because there was none.
	Reclaims, Kills uint64
	// Periods of the scheduler (100 ms) in which something ran, and those of them in which
	// it was made to wait.
	Periods, Throttled uint64
}

// ErrUnavailable says that no group with limits can be made here. The errors that wrap it
// say why, and what to do.
var ErrUnavailable = errors.New("processes cannot be limited here")

// unavailable words one for people.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, fmt.Errorf(format, args...))
}
