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
// comparison compiles this very folder (through a symbolic link), so that every subject
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
	// Load is what is sent; empty means [LoadStreams].
	Load string `json:"load,omitempty"`
	// Streams is the number of TCP connections of LoadStreams and LoadRequests, of clients
	// of LoadConnections and of watches of LoadWatches.
	Streams int `json:"streams,omitempty"`
	// Direction is the one in which LoadStreams sends; empty means [Forward].
	Direction string `json:"direction,omitempty"`
	// Size is that of a datagram's payload, a response's body or an event, in bytes.
	Size int `json:"sizeBytes,omitempty"`
	// Rate is what is offered each second, datagrams or requests; 0 means datagrams as
	// fast as they are taken, and requests one after the other.
	Rate float64 `json:"ratePerSecond,omitempty"`
	// Busy has LoadRequests made beside one bulk stream.
	Busy bool `json:"busy,omitempty"`
	// Workloads has LoadRequests made beside what goes through [Ends.Workloads]; nil for nothing.
	Workloads *Workloads `json:"workloads,omitempty"`
	// Watches has LoadRequests made beside so many watches, each of which gets an event of
	// Size bytes every WatchInterval.
	Watches int `json:"watches,omitempty"`
	// MTU of the overlay in bytes; 0 means the subject's own default.
	MTU int `json:"mtuBytes,omitempty"`
	// Via is the address, IP:port, of a forwarder that stands for the other end's
	// underlay address; empty for a direct way. The dialling end is to speak to it first:
	// that is how it knows which way is which.
	Via string `json:"via,omitempty"`
	// Relay is the address, IP:port, of the TURN server that was started for the run;
	// empty for subjects that need none.
	Relay string `json:"relay,omitempty"`
	// Program is the file of the program whose processes the subject is; empty for subjects
	// that live in the run's.
	Program string `json:"program,omitempty"`
	// CPUs, in cores, and Memory, in bytes, bound each process of the subject; 0 means no
	// bound.
	CPUs   float64 `json:"cpus,omitempty"`
	Memory uint64  `json:"memoryBytes,omitempty"`
	// Warmup passes before anything is counted; Duration is what is counted. From is when
	// counting begins instead of after Warmup, for runs that are to be counted at once.
	Warmup   time.Duration `json:"warmupNanoseconds"`
	From     time.Time     `json:"from,omitzero"`
	Duration time.Duration `json:"durationNanoseconds"`
	// CPUProfile (of the window) and HeapProfile (live at its end, and allocated since
	// the start) are files to be written, in pprof's format; empty for none.
	CPUProfile  string `json:"cpuProfile,omitempty"`
	HeapProfile string `json:"heapProfile,omitempty"`

	bearers *Bearers // Of the run's ends; nil for none.
}

// The loads.
const (
	LoadStreams     = "streams"     // Bulk TCP.
	LoadDatagrams   = "datagrams"   // UDP.
	LoadRequests    = "requests"    // HTTP/1.1 requests on a connection that is kept.
	LoadConnections = "connections" // New TCP connections, one after the other.
	LoadWatches     = "watches"     // Long responses to which every event is written.
	LoadFirstByte   = "first-byte"  // From nothing to the first byte.
	LoadIdle        = "idle"        // One TCP connection on which nothing is sent.
)

// The directions of streams, seen from the dialling end.
const (
	Forward = "forward" // It sends.
	Reverse = "reverse" // It receives.
	Both    = "both"    // Each stream carries as much as it can both ways.
)

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
	// Values are the load's own quantities, by their units in benchstat's format
	// ("p99-sec", "packets/s").
	Values map[string]float64 `json:"values,omitempty"`
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
// together; 0 where processor time is unknown.
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
