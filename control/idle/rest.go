// Package idle keeps the process's memory small while there is little traffic, and returns to the
// system what a busy period needed.
package idle

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// restAfter is how long traffic must be low before the process rests, and restBytes the
	// maximum of low traffic in bytes a second. Checks and keepalives of a thousand peers are a
	// tenth of that. Below it, an additional collection costs users nothing.
	restAfter = time.Minute
	restBytes = 1 << 20
	// restPace is the minimum interval between returns of memory. restGrowth is how much memory must
	// have grown since the last one, in bytes. With a thousand peers this takes a twentieth of a
	// second of processor time a minute. The last return may have come in the middle of work for the
	// cluster, which is not counted here, so up to restGrowth may stay for good: it is small.
	restPace   = time.Minute
	restGrowth = 4 << 20
	// calmPercent is how much the heap may grow between collections (GOGC) while at most
	// calmBytes a second are carried, a tenth of what a core can carry. A thousand peers that
	// connect at the same time carry less than that, and allocate long-lived objects among much
	// garbage. More frequent collections leave fewer permanent gaps between these (40 MB instead
	// of 65).
	calmPercent = 40
	calmBytes   = 8 << 20
)

// Rest keeps memory small during low traffic, and returns memory that a busy gateway needed. That
// is mainly WireGuard's buffers of 64 KiB, which many concurrent handshakes leave behind. Go
// frees them with the second following collection, and returns them to the system minutes later.
// Turn must be called from one goroutine.
type Rest struct {
	Memory memory
	work   sync.WaitGroup

	at    time.Time // of the last Turn
	bytes uint64    // at that time
	quiet time.Time // since when traffic has been low
	// calm: traffic is low, and percent is the GOGC of other times.
	calm    bool
	percent int
	gave    time.Time // when memory was last returned
	left    atomic.Uint64
	giving  atomic.Bool
}

// memory is the process's memory.
type memory interface {
	// Held returns the size of the heap in bytes, as obtained from the system.
	Held() uint64
	// SetPercent sets GOGC and returns the previous value.
	SetPercent(percent int) int
	// GiveBack collects garbage and returns free memory to the system. If thoroughly, it empties
	// pools first.
	GiveBack(thoroughly bool)
}

// Turn must be called about every second with the total bytes sent to and received from peers.
func (r *Rest) Turn(now time.Time, bytes uint64) {
	if r.at.IsZero() {
		r.at, r.bytes, r.quiet = now, bytes, now
	}
	since := now.Sub(r.at).Seconds()
	exceeds := func(limit float64) bool { return bytes > r.bytes && float64(bytes-r.bytes) > limit*since }
	much, calm := exceeds(restBytes), !exceeds(calmBytes)
	r.at, r.bytes = now, bytes
	if calm {
		r.save()
	} else {
		r.spend()
	}
	if much {
		r.quiet = now
	}
	if now.Sub(r.quiet) < restAfter {
		return
	}
	if now.Sub(r.gave) < restPace || r.giving.Load() || r.Memory.Held() < r.left.Load()+restGrowth {
		return
	}
	thoroughly := !r.gave.After(r.quiet)
	r.gave = now
	r.giving.Store(true)
	r.work.Go(func() {
		defer r.giving.Store(false)
		r.Memory.GiveBack(thoroughly)
		r.left.Store(r.Memory.Held())
	})
}

// save reduces GOGC, unless it is already lower.
func (r *Rest) save() {
	if r.calm {
		return
	}
	r.calm = true
	if r.percent = r.Memory.SetPercent(calmPercent); r.percent < calmPercent { // -1 is off
		r.Memory.SetPercent(r.percent)
	}
}

// spend restores GOGC.
func (r *Rest) spend() {
	if r.calm {
		r.calm = false
		r.Memory.SetPercent(r.percent)
	}
}

// Close waits for work in progress.
func (r *Rest) Close() {
	r.spend()
	r.work.Wait()
}

// Process is the memory of this process, which has no other gateway.
type Process struct{}

func (Process) Held() (sum uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			sum += s.Value.Uint64()
		}
	}
	return sum
}

func (Process) SetPercent(percent int) int { return debug.SetGCPercent(percent) }

func (Process) GiveBack(thoroughly bool) {
	if thoroughly { // a sync.Pool keeps dropped objects for one collection
		runtime.GC()
	}
	debug.FreeOSMemory()
}
