package load

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// SampleInterval is the interval at which the process's anonymous memory is sampled: 60 times in
// a window of 3 s, for about 30 µs each.
const SampleInterval = 50 * time.Millisecond

// Measure waits for the warm-up, then meters the process for the length of the window. count
// returns what has arrived so far, one number for each stream. It is called at the window's
// beginning and end, from one goroutine. An error sent to failed ends the measurement.
func Measure(spec Spec, count func() []uint64, failed <-chan error) (Result, error) {
	r, _, err := measure(spec, count, failed)
	return r, err
}

// window is the metered time.
type window struct{ from, to time.Time }

// measure is [Measure] and also returns the window.
func measure(spec Spec, count func() []uint64, failed <-chan error) (Result, window, error) {
	warmup := spec.Warmup
	if !spec.From.IsZero() {
		if warmup = time.Until(spec.From); warmup < 0 {
			return Result{}, window{}, fmt.Errorf("connected %s after the window began", -warmup)
		}
	}
	if err := wait(warmup, failed, nil); err != nil {
		return Result{}, window{}, fmt.Errorf("warming up: %w", err)
	}
	stop, err := startProfiles(spec)
	if err != nil {
		return Result{}, window{}, err
	}
	by := spec.bearers
	counted0, err0 := by.counters()
	var peak uint64
	before, start := count(), time.Now()
	user0, system0 := by.processorTime()
	waitErr := wait(spec.Duration, failed, func() { peak = max(peak, by.memory().anon) })
	after, end := count(), time.Now()
	user1, system1 := by.processorTime()
	counted1, err1 := by.counters()
	if err := errors.Join(waitErr, err0, err1, stop()); err != nil {
		return Result{}, window{}, err
	}
	r := Result{
		Seconds:       end.Sub(start).Seconds(),
		StreamBytes:   make([]uint64, len(after)),
		UserSeconds:   (user1 - user0).Seconds(),
		SystemSeconds: (system1 - system0).Seconds(),
	}
	for i := range after {
		r.StreamBytes[i] = after[i] - before[i]
		r.Bytes += r.StreamBytes[i]
	}
	m := by.memory()
	r.with(growth(counted0, counted1))
	r.PeakRSS, r.PeakAnon = m.peak, max(peak, m.anon)
	return r, window{start, end}, nil
}

// wait waits for d, calling sample meanwhile, or until something fails.
func wait(d time.Duration, failed <-chan error, sample func()) error {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(SampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-end.C:
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
			if sample != nil {
				sample()
			}
		}
	}
}

// startProfiles starts the spec's profiles. The returned function ends them and writes the files.
func startProfiles(spec Spec) (stop func() error, err error) {
	var cpu *os.File
	if spec.CPUProfile != "" {
		if cpu, err = os.Create(spec.CPUProfile); err != nil {
			return nil, fmt.Errorf("cpu profile: %w", err)
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(fmt.Errorf("cpu profile %s: %w", spec.CPUProfile, err), cpu.Close())
		}
	}
	return func() error {
		var errs []error
		if cpu != nil {
			pprof.StopCPUProfile()
			errs = append(errs, cpu.Close())
		}
		if spec.HeapProfile != "" {
			errs = append(errs, writeHeapProfile(spec.HeapProfile))
		}
		return errors.Join(errs...)
	}, nil
}

// writeHeapProfile writes live memory and allocations since the start.
func writeHeapProfile(path string) error {
	runtime.GC() // the profile shows the heap as of the last collection
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("heap profile: %w", err)
	}
	if err := pprof.Lookup("heap").WriteTo(f, 0); err != nil {
		return errors.Join(fmt.Errorf("heap profile %s: %w", path, err), f.Close())
	}
	return f.Close()
}

// usage is a process's memory in bytes; zero if the system does not provide it.
type usage struct {
	peak uint64 // peak resident set since the process began
	anon uint64 // anonymous part of the resident set now
}
