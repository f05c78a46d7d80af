// Package load is the inside of one measured run: a process of its own in which both
// ends of one subject live, filled with traffic for a while and asked what it cost.
//
// # The run
//
// A run is told what to do by one JSON document, [Spec], in its last argument, and
// answers with one JSON line, [Result], on standard output. Everything else it has to
// say goes to standard error, and a run that could not be made exits 1. So a subject
// may be any program, in any module, with any dependencies.
//
// Because a run is a process, its memory and processor time are the subject's: the
// operating system counts them, whatever the subject is written in, and nothing of
// another subject's garbage is left in it.
//
// The package imports nothing but the standard library: the module of the peers for
// comparison compiles the same files (through symbolic links), so that every subject
// is loaded and measured by the same lines of code.
package load

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Spec says what one run is to do.
type Spec struct {
	// Subject is the name of what is measured, as in the report.
	Subject string `json:"subject"`
	// Streams is the number of TCP connections, all in one direction.
	Streams int `json:"streams,omitempty"`
	// Relay is the address, IP:port, of the TURN server that was started for the run;
	// empty for subjects that need none.
	Relay string `json:"relay,omitempty"`
	// Warmup passes before anything is counted; Duration is what is counted.
	Warmup   time.Duration `json:"warmupNanoseconds"`
	Duration time.Duration `json:"durationNanoseconds"`
	// CPUProfile (of the window) and HeapProfile (live at its end, and allocated since
	// the start) are files to be written, in pprof's format; empty for none.
	CPUProfile  string `json:"cpuProfile,omitempty"`
	HeapProfile string `json:"heapProfile,omitempty"`
}

// ParseSpec reads a spec and refuses one that asks for nothing.
func ParseSpec(text string) (Spec, error) {
	var s Spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Spec{}, fmt.Errorf("run: spec %q: %w", text, err)
	}
	if s.Duration <= 0 {
		return Spec{}, fmt.Errorf("run: spec %q: durationNanoseconds must be positive", text)
	}
	return s, nil
}

// Result is what one run measured. Everything is of the measured window, but for the
// peaks, which are of the whole run: what a process needed once must be there for it.
type Result struct {
	// Bytes is the payload that arrived, over all streams, in Seconds.
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// StreamBytes is the same for each stream, to show how evenly they shared.
	StreamBytes []uint64 `json:"streamBytes,omitempty"`
	// Processor time of the process (both ends), in seconds.
	UserSeconds   float64 `json:"userSeconds"`
	SystemSeconds float64 `json:"systemSeconds"`
	// PeakRSS is the greatest resident memory in bytes (VmHWM). PeakAnon is its part
	// that is not backed by files, sampled every SampleInterval.
	PeakRSS  uint64 `json:"peakRSSBytes"`
	PeakAnon uint64 `json:"peakAnonBytes"`
}

// CPUSeconds is the processor time, user and system.
func (r Result) CPUSeconds() float64 { return r.UserSeconds + r.SystemSeconds }

// BitsPerSecond is the payload's rate, 0 for an empty window.
func (r Result) BitsPerSecond() float64 { return perUnit(float64(r.Bytes)*8, r.Seconds) }

// BitsPerCPUSecond is the payload's rate over the cores that were busy, both ends
// together; 0 where processor time is not known.
func (r Result) BitsPerCPUSecond() float64 { return perUnit(float64(r.Bytes)*8, r.CPUSeconds()) }

// Cores is the number of cores that were busy on average.
func (r Result) Cores() float64 { return perUnit(r.CPUSeconds(), r.Seconds) }

func perUnit(v, unit float64) float64 {
	if unit <= 0 {
		return 0
	}
	return v / unit
}

// Write puts the result on one line.
func (r Result) Write(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("run: write result: %w", err)
	}
	return nil
}
