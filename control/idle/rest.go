// Package idle keeps the process's memory small while nothing much is carried, and gives back
// what was needed while it was busy.
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
	// restAfter is how long nothing much must have been carried before the process rests,
	// and restBytes how much a second is nothing much: checks and keepalives of a thousand
	// peers are a tenth of it, and below it a collection more costs nobody anything.
	restAfter = time.Minute
	restBytes = 1 << 20
	// restPace is how often memory is given back at most, and restGrowth by how much more
	// of it there must be than was left the last time. With a thousand peers that is a
	// twentieth of a second of a processor a minute. The last time may have been in the midst of
	// work for the cluster, which is not counted here, so what was left then is no measure of
	// what there has to be: growth is small, and up to that much may stay for good.
	restPace   = time.Minute
	restGrowth = 4 << 20
	// calmPercent is how far the heap may grow beyond what is alive (GOGC) while no more than
	// calmBytes a second are carried, a tenth of what a core can. What there is room for is
	// kept. A thousand peers that connect at the same time carry less than that and make much
	// garbage, between which what stays is put: the less of it there is at a time, the fewer
	// gaps it leaves for good (40 MB instead of 65).
	calmPercent = 40
	calmBytes   = 8 << 20
)

// Rest keeps memory small while nothing much is carried, and gives back what a gateway needed
// while it was busy: WireGuard's buffers of 64 KiB above all, which all peers that connect at
// the same time leave behind, and which Go drops with the second collection after that, and
// returns to the system minutes later. turn is for one goroutine.
type Rest struct {
	Memory memory
	work   sync.WaitGroup

	at    time.Time // of the last turn
	bytes uint64    // by then
	quiet time.Time // since when there is nothing much to do
	// calm: little is carried, and percent is GOGC of when it is more.
	calm    bool
	percent int
	gave    time.Time // memory back, last
	left    atomic.Uint64
	giving  atomic.Bool
}

// memory is the process's.
type memory interface {
	// Held is what the heap has of the system, in bytes.
	Held() uint64
	// SetPercent sets GOGC and returns the one before.
	SetPercent(percent int) int
	// GiveBack collects and returns what is free; thoroughly: what is in pools as well.
	GiveBack(thoroughly bool)
}

// Turn is called every second or so with all bytes that peers have been sent and have sent.
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

// save has the heap kept small, unless whoever set GOGC wants it smaller.
func (r *Rest) save() {
	if r.calm {
		return
	}
	r.calm = true
	if r.percent = r.Memory.SetPercent(calmPercent); r.percent < calmPercent { // -1 is off
		r.Memory.SetPercent(r.percent)
	}
}

// spend ends that: there is better to do than to collect.
func (r *Rest) spend() {
	if r.calm {
		r.calm = false
		r.Memory.SetPercent(r.percent)
	}
}

// Close waits for what is in progress.
func (r *Rest) Close() {
	r.spend()
	r.work.Wait()
}

// processMemory is that of this process, which has no other gateway.
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
	if thoroughly { // A sync.Pool keeps for one collection what it drops.
		runtime.GC()
	}
	debug.FreeOSMemory()
}
