package check

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// Names of the checks of this host's resources.
const (
	NameResources = "resources"
	NameMemory    = "resources-memory"
	NameCPU       = "resources-cpu"
	NameSending   = "resources-sending" // only while it fails
)

const (
	// leastBuffer is the minimum size of the receive buffer, as requested: 128 KiB are 1 ms at 1
	// Gbit/s. Linux' default is larger (212,992).
	leastBuffer = 128 << 10
	// dropsShown is how many datagrams a socket may drop, or this host refuse to send, in the
	// window: a handful is a burst, and WireGuard's counters show it.
	dropsShown = 10
	// memoryNear is the percentage of the limit from which the kernel may kill the gateway with
	// little notice: Go's collector lets the heap grow in steps.
	memoryNear = 90
	// cpuThrottled is the percentage of scheduler periods, out of at least cpuPeriods, in which the
	// gateway was throttled. A period is 100 ms.
	cpuThrottled = 25
	cpuPeriods   = 50
	// window is the time over which counters are compared.
	window = time.Minute
)

// usage is a sample of the counters.
type usage struct {
	at                 time.Time
	drops, refused     uint64
	filtered           uint64 // packets that this host's reverse path filter discarded
	periods, throttled uint64
	limited            bool // there is a CPU limit
	memory, limit      uint64
	unit               string // the systemd unit that has the limits
}

// resources keeps two samples of the counters, a window apart.
type resources struct {
	older, newer usage
	// filtered are how many packets were discarded by the reverse path filter, in each of the last
	// windows, the newest last.
	filtered []Rate
}

// filteredKept is how many windows are remembered.
const filteredKept = 30

// sample reads the counters. It keeps the older sample as long as the newer one is not a window
// old.
func (s *resources) sample(root fs.FS, o Own, now time.Time) usage {
	u := usage{at: now, drops: o.Sockets.Drops, refused: o.Sockets.Refused}
	if root != nil {
		readCgroup(root, &u)
		u.filtered = readProtocol(root, "TcpExt", "IPReversePathFilter")
	}
	switch {
	case s.newer.at.IsZero():
		s.newer, s.older = u, u
	case now.Sub(s.newer.at) >= window:
		s.filtered = append(s.filtered, Rate{since(u.filtered, s.newer.filtered), s.newer.at, now})
		s.filtered = s.filtered[max(0, len(s.filtered)-filteredKept):]
		s.older, s.newer = s.newer, u
	}
	return u
}

// judge returns the checks of sockets, memory and CPU. Sends are counted up to now, since the check
// of a peer that runs at the same time sends the most.
func (s *resources) judge(o Own, u usage, now time.Time) []verdict.Finding {
	out := []verdict.Finding{s.sockets(o, u)}
	if refused := since(o.Sockets.Refused, s.older.refused); refused >= dropsShown {
		p := catalogue.Params{Inbound: true, Detail: o.Sockets.RefusedBecause}
		p.Drops, p.Age = refused, now.Sub(s.older.at)
		out = append(out, beginOwn(NameSending).fail(api.Warning, "socket", catalogue.SendFails, p))
	}
	if u.limit > 0 {
		out = append(out, memory(u))
	}
	if u.limited {
		out = append(out, s.cpu(u))
	}
	return out
}

func (s *resources) sockets(o Own, u usage) verdict.Finding {
	r := beginOwn(NameResources)
	dropped := since(u.drops, s.older.drops)
	small := o.Sockets.ReceiveBuffer > 0 && o.Sockets.ReceiveBuffer < leastBuffer
	if !small && dropped < dropsShown {
		if o.Sockets.ReceiveBuffer > 0 {
			r.stage("socket", api.OK, catalogue.Bytes(uint64(o.Sockets.ReceiveBuffer))+" receive buffer")
		}
		return r.ok(0)
	}
	p := catalogue.Params{Inbound: true}
	p.Used, p.Max, p.Drops, p.Age = uint64(max(0, o.Sockets.ReceiveBuffer)), leastBuffer, dropped, u.at.Sub(s.older.at)
	r.stage("socket", api.Warning, fmt.Sprintf("%s receive buffer, %d datagrams dropped", catalogue.Bytes(p.Used), dropped))
	return r.found(api.Warning, "socket", catalogue.SocketBufferSmall, p)
}

func memory(u usage) verdict.Finding {
	r := beginOwn(NameMemory)
	seen := catalogue.Bytes(u.memory) + " of " + catalogue.Bytes(u.limit)
	if u.memory*100 < u.limit*memoryNear {
		r.stage("memory", api.OK, seen)
		return r.ok(0)
	}
	p := catalogue.Params{Inbound: true}
	p.Used, p.Max, p.Unit = u.memory, u.limit, u.unit
	r.stage("memory", api.Warning, seen)
	return r.found(api.Warning, "memory", catalogue.MemoryNear, p)
}

func (s *resources) cpu(u usage) verdict.Finding {
	r := beginOwn(NameCPU)
	periods, throttled := since(u.periods, s.older.periods), since(u.throttled, s.older.throttled)
	if periods < cpuPeriods || throttled*100 < periods*cpuThrottled {
		return r.ok(0)
	}
	p := catalogue.Params{Inbound: true}
	p.Used, p.Max, p.Unit, p.Age = throttled, periods, u.unit, u.at.Sub(s.older.at)
	r.stage("cpu", api.Warning, fmt.Sprintf("throttled in %d of %d periods", throttled, periods))
	return r.found(api.Warning, "cpu", catalogue.CPUThrottled, p)
}

// since returns a counter's growth, 0 for a counter that was reset.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// serviceUnit matches a control group of a systemd service (systemd.unit(5)).
var serviceUnit = regexp.MustCompile(`^[A-Za-z0-9:_.@-]{1,247}\.service$`)

// readCgroup reads the limits of this process's control group: version 2 (one hierarchy,
// cgroup-v2.rst in the kernel's documentation) or version 1 (one per controller). In a container
// the group is the root of the mount.
func readCgroup(root fs.FS, u *usage) {
	const mount = "sys/fs/cgroup"
	groups := cgroupPaths(root)
	for _, hierarchy := range []string{"", "name=systemd"} {
		if name := path.Base(groups[hierarchy]); serviceUnit.MatchString(name) {
			u.unit = name
		}
	}
	for _, dir := range []string{path.Join(mount, groups[""]), mount} {
		limit, limited := readNumber(root, path.Join(dir, "memory.max"))
		used, ok := readNumber(root, path.Join(dir, "memory.current"))
		if ok && limited {
			u.memory, u.limit = since(used, readField(root, path.Join(dir, "memory.stat"), "inactive_file")), limit
		}
		if quota, err := fs.ReadFile(root, path.Join(dir, "cpu.max")); err == nil {
			u.limited = !strings.HasPrefix(string(quota), "max")
			u.periods = readField(root, path.Join(dir, "cpu.stat"), "nr_periods")
			u.throttled = readField(root, path.Join(dir, "cpu.stat"), "nr_throttled")
		}
		if ok {
			return
		}
	}
	for _, dir := range []string{path.Join(mount, "memory", groups["memory"]), path.Join(mount, "memory")} {
		limit, _ := readNumber(root, path.Join(dir, "memory.limit_in_bytes"))
		used, ok := readNumber(root, path.Join(dir, "memory.usage_in_bytes"))
		if !ok {
			continue
		}
		if limit < 1<<62 { // without a limit it is the maximum number of pages
			u.memory, u.limit = since(used, readField(root, path.Join(dir, "memory.stat"), "total_inactive_file")), limit
		}
		break
	}
	for _, dir := range []string{path.Join(mount, "cpu", groups["cpu"]), path.Join(mount, "cpu")} {
		quota, err := fs.ReadFile(root, path.Join(dir, "cpu.cfs_quota_us"))
		if err != nil {
			continue
		}
		u.limited = !strings.HasPrefix(string(quota), "-")
		u.periods = readField(root, path.Join(dir, "cpu.stat"), "nr_periods")
		u.throttled = readField(root, path.Join(dir, "cpu.stat"), "nr_throttled")
		break
	}
}

// cgroupPaths returns this process's groups by controller, relative to their mounts; "" is that of
// version 2 (proc(5), /proc/pid/cgroup: ID:CONTROLLERS:PATH).
func cgroupPaths(root fs.FS) map[string]string {
	out := make(map[string]string)
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || strings.Contains(f[2], "..") {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = strings.Trim(f[2], "/")
		}
	}
	return out
}

func readNumber(root fs.FS, name string) (uint64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// readField reads a number from a file with lines of a key and a value.
func readField(root fs.FS, name, key string) uint64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// readProtocol reads a counter of this host's network (proc_net(5), /proc/net/netstat): a line with
// the names of a protocol's counters is followed by one with their values.
func readProtocol(root fs.FS, protocol, counter string) uint64 {
	text, err := fs.ReadFile(root, "proc/self/net/netstat")
	if err != nil {
		return 0
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != protocol+":" {
			continue
		}
		if i := slices.Index(names, counter); 0 < i && i < len(f) {
			n, _ := strconv.ParseUint(f[i], 10, 64) // what is no number counts nothing
			return n
		}
		names = f
	}
	return 0
}
