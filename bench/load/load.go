// Package load makes one measured run: a process that contains both ends of one subject, sends
// traffic through them for a while and measures the cost.
//
// # Run
//
// A run gets a JSON document, [Spec], as its last argument, and writes one line of JSON,
// [Result], to standard output. Everything else goes to standard error. A failed run exits with
// code 1. So a subject may be any program, in any module, with any dependencies.
//
// Because a run is a process, its memory and processor time are the subject's: the operating
// system measures them, in whatever language the subject is written, and no garbage of another
// subject is included.
//
// The package only imports the standard library. The module of the peers for comparison compiles
// this folder through a symbolic link, so all subjects are loaded and measured by the same code.
//
// # Files
//
//   - load.go: the description of a run, and its result
//   - main.go: a program that makes runs
//   - ends.go: which load is applied, and the two ends
//   - meter.go: warm-up, window, profiles
//   - process_linux.go, process_other.go: processor time and memory
//   - children.go: those of other processes
//   - delays.go: delays and quantiles
//   - timetable.go: when an operation is due
//   - workers.go: goroutines and connections of a run
//   - streams.go: bulk TCP
//   - datagrams.go: UDP
//   - connections.go: new connections
//   - requests.go: HTTP requests
//   - watches.go, beside.go: watches; beside another load
//   - workloads.go: bulk streams beside another load
//   - firstbyte.go: the time to the first byte
//   - idle.go: an idle connection
//   - carry.go: kernel TCP before and behind a tunnel
//   - greeting.go: telling the load's connections from others
package load

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Spec describes a run.
type Spec struct {
	// Subject is the subject's name, as in the report.
	Subject string `json:"subject"`
	// Load is the load; empty means [LoadStreams].
	Load string `json:"load,omitempty"`
	// Streams is the number of TCP connections of LoadStreams and LoadRequests, of clients of
	// LoadConnections and of watches of LoadWatches.
	Streams int `json:"streams,omitempty"`
	// Direction is the direction in which LoadStreams sends; empty means [Forward].
	Direction string `json:"direction,omitempty"`
	// Size is the size of a datagram's payload, a response's body or an event, in bytes.
	Size int `json:"sizeBytes,omitempty"`
	// Rate is the number of datagrams or requests each second; 0 means datagrams as fast as they
	// are accepted, and requests one after the other.
	Rate float64 `json:"ratePerSecond,omitempty"`
	// Busy adds a bulk stream to LoadRequests.
	Busy bool `json:"busy,omitempty"`
	// Workloads adds traffic through [Ends.Workloads] to LoadRequests; nil means none.
	Workloads *Workloads `json:"workloads,omitempty"`
	// Watches adds this many watches to LoadRequests. Each gets an event of Size bytes every
	// WatchInterval.
	Watches int `json:"watches,omitempty"`
	// MTU of the overlay in bytes; 0 means the subject's default.
	MTU int `json:"mtuBytes,omitempty"`
	// Via is the IP:port of a forwarder to be used as the other end's underlay address; empty
	// means a direct path. Both ends must send to it: it learns their addresses from their first
	// packets.
	Via string `json:"via,omitempty"`
	// Relay is the IP:port of the TURN server that was started for the run; empty for subjects
	// that need none.
	Relay string `json:"relay,omitempty"`
	// Program is the file of the program whose processes are the subject; empty for subjects in
	// the run's process.
	Program string `json:"program,omitempty"`
	// CPUs, in cores, and Memory, in bytes, limit each process of the subject; 0 means no limit.
	CPUs   float64 `json:"cpus,omitempty"`
	Memory uint64  `json:"memoryBytes,omitempty"`
	// Warmup is the time before the window, Duration the window's length. From, if set, is the
	// window's beginning instead, for runs with a common window.
	Warmup   time.Duration `json:"warmupNanoseconds"`
	From     time.Time     `json:"from,omitzero"`
	Duration time.Duration `json:"durationNanoseconds"`
	// CPUProfile (of the window) and HeapProfile (live memory at the window's end, and
	// allocations since the start) are files to write in pprof's format; empty means none.
	CPUProfile  string `json:"cpuProfile,omitempty"`
	HeapProfile string `json:"heapProfile,omitempty"`

	bearers *Bearers // of the run's ends; nil means this process
}

// The loads.
const (
	LoadStreams     = "streams"     // bulk TCP
	LoadDatagrams   = "datagrams"   // UDP
	LoadRequests    = "requests"    // HTTP/1.1 requests on persistent connections
	LoadConnections = "connections" // new TCP connections, one after the other
	LoadWatches     = "watches"     // long responses, each with every event
	LoadFirstByte   = "first-byte"  // from the start to the first byte
	LoadIdle        = "idle"        // one TCP connection on which nothing is sent
)

// The directions of streams, seen from the dialling end.
const (
	Forward = "forward" // it sends
	Reverse = "reverse" // it receives
	Both    = "both"    // each stream carries as much as possible both ways
)

// ParseSpec parses a spec. It refuses one without a duration.
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

// Result is the measurement of a run. It covers the window, except for the peaks, which cover the
// whole run.
type Result struct {
	// Bytes is the payload received over all streams in Seconds.
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// StreamBytes is the same for each stream, to show how evenly they shared.
	StreamBytes []uint64 `json:"streamBytes,omitempty"`
	// Values are the load's own values, by unit in benchstat's format ("p99-sec", "packets/s").
	Values map[string]float64 `json:"values,omitempty"`
	// Processor time of the process (both ends), in seconds.
	UserSeconds   float64 `json:"userSeconds"`
	SystemSeconds float64 `json:"systemSeconds"`
	// PeakRSS is the peak resident memory in bytes (VmHWM). PeakAnon is the peak of the part not
	// backed by files, sampled every SampleInterval.
	PeakRSS  uint64 `json:"peakRSSBytes"`
	PeakAnon uint64 `json:"peakAnonBytes"`
}

// CPUSeconds is the processor time, user and system.
func (r Result) CPUSeconds() float64 { return r.UserSeconds + r.SystemSeconds }

// BitsPerSecond is the payload's rate; 0 for an empty window.
func (r Result) BitsPerSecond() float64 { return perUnit(float64(r.Bytes)*8, r.Seconds) }

// BitsPerCPUSecond is the payload, in bits, for each second of processor time of both ends; 0 if
// that time is unknown.
func (r Result) BitsPerCPUSecond() float64 { return perUnit(float64(r.Bytes)*8, r.CPUSeconds()) }

// Cores is the average number of busy cores.
func (r Result) Cores() float64 { return perUnit(r.CPUSeconds(), r.Seconds) }

func perUnit(v, unit float64) float64 {
	if unit <= 0 {
		return 0
	}
	return v / unit
}

// Write writes the result as one line.
func (r Result) Write(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("run: write result: %w", err)
	}
	return nil
}
