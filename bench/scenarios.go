package bench

import (
	"fmt"

	"github.com/postern-dev/postern/bench/load"
)

// Scenario is a load.
type Scenario struct {
	// Name is the argument of -scenario.
	Name string
	// Title says what the scenario does; tables use it as heading.
	Title string
	// Benchmark is the name in benchstat's format, without "Benchmark".
	Benchmark string
	// Default includes the scenario if none is selected. Every scenario that a requirement needs
	// has it.
	Default bool
	// Spec describes the runs. The runner fills in the subject, the durations and the profile
	// files.
	Spec load.Spec
	// Subjects are the names of the subjects, in the order of the runs.
	Subjects []string
	// Reference is the subject that tables compare the others with; empty means none.
	Reference string
	// Metrics are shown for each subject, in the order of the columns. Ratios and charts use the
	// first.
	Metrics []Metric
}

// Scenarios returns all scenarios, in the order of the runs of a round.
func Scenarios() []Scenario {
	var all []Scenario
	for _, some := range [][]Scenario{streamScenarios(), delayScenarios(), packetScenarios(), binaryScenarios(), serviceScenarios(), otherScenarios()} {
		all = append(all, some...)
	}
	return all
}

// streamScenarios are those of bulk TCP.
func streamScenarios() []Scenario {
	everyone := []string{Postern, Tsnet, WireGuardTUN, Stock, Loopback}
	userspace := []string{Postern, Tsnet, Stock}
	metrics := []Metric{Throughput, Efficiency, Cores, PeakMemory, PeakAnonymous}
	all := []Scenario{
		{
			Name: "tcp-1", Title: "one TCP stream, both ends in one process", Default: true,
			Benchmark: "TCP/streams=1", Spec: load.Spec{Streams: 1},
			Subjects: append([]string{Unprivileged}, everyone...), Reference: Stock, Metrics: metrics,
		},
		{
			Name: "tcp-4", Title: "four TCP streams, both ends in one process: the sum", Default: true,
			Benchmark: "TCP/streams=4", Spec: load.Spec{Streams: 4},
			Subjects: userspace, Reference: Stock, Metrics: metrics,
		},
		{
			Name: "path", Title: "one TCP stream: to a fixed endpoint, over a path that was found, through a TURN server", Default: true,
			Benchmark: "Path/streams=1", Spec: load.Spec{Streams: 1},
			Subjects:  []string{Postern, PosternPaths, PionUDP, PionTCP, CoturnUDP, CoturnTCP},
			Reference: Postern, Metrics: metrics,
		},
		{
			Name: "tcp-1-reverse", Title: "one TCP stream from the accepting end to the dialling one",
			Benchmark: "TCP/streams=1/direction=reverse", Spec: load.Spec{Streams: 1, Direction: load.Reverse},
			Subjects: everyone, Reference: Stock, Metrics: metrics,
		},
		{
			Name: "tcp-1-both", Title: "one TCP stream that is full both ways: the sum",
			Benchmark: "TCP/streams=1/direction=both", Spec: load.Spec{Streams: 1, Direction: load.Both},
			Subjects: everyone, Reference: Stock, Metrics: metrics,
		},
	}
	for _, mtu := range []int{1280, 1420, 8920} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("mtu-%d", mtu), Title: fmt.Sprintf("one TCP stream, an overlay MTU of %d bytes", mtu),
			Benchmark: fmt.Sprintf("TCP/streams=1/mtu=%d", mtu), Spec: load.Spec{Streams: 1, MTU: mtu},
			Subjects: everyone[:len(everyone)-1], Reference: Stock, Metrics: metrics,
		})
	}
	return all
}

// Sizes, in bytes, in the delay scenarios.
const (
	// objectSize is the size of a response: an API object such as a Pod with its status.
	objectSize = 4096
	// eventSize is the size of a watch event: a Lease, the object that changes most often.
	eventSize = 1024
)

// delayScenarios measure the delays that clients of an API server see.
func delayScenarios() []Scenario {
	all := []string{Postern, Tsnet, WireGuardTUN, Stock, Loopback}
	few := []string{Postern, Tsnet, Stock, Loopback} // those that requirements need
	return []Scenario{
		{
			Name: "requests", Title: "HTTP/1.1 requests for an object of 4 KiB, one after the other", Default: true,
			Benchmark: "HTTP/bytes=4096", Spec: load.Spec{Load: load.LoadRequests, Size: objectSize},
			Subjects: few, Reference: Stock, Metrics: []Metric{Median, P99, P999, Requests, Cores, PeakMemory},
		},
		{
			Name: "requests-busy", Title: "100 HTTP/1.1 requests a second on 4 connections, beside one bulk stream", Default: true,
			Benchmark: "HTTP/bytes=4096/bulk=1",
			Spec:      load.Spec{Load: load.LoadRequests, Size: objectSize, Streams: 4, Rate: 100, Busy: true},
			Subjects:  few, Reference: Stock, Metrics: []Metric{P99, Median, Bulk, Cores, PeakMemory},
		},
		{
			Name: "first-byte", Title: "from nothing to the first byte through a TCP connection", Default: true,
			Benchmark: "FirstByte", Spec: load.Spec{Load: load.LoadFirstByte},
			Subjects: append([]string{PosternPaths}, all...), Reference: Stock, Metrics: []Metric{FirstByte, PeakMemory},
		},
		{
			Name: "connections", Title: "new TCP connections by 4 clients: connect, a byte each way, close",
			Benchmark: "Connections/clients=4", Spec: load.Spec{Load: load.LoadConnections, Streams: 4},
			Subjects: all, Reference: Stock, Metrics: []Metric{Connections, Median, P99, P999, Cores, PeakMemory},
		},
		{
			Name: "watches", Title: "events of 1 KiB, each to 200 watches; the next one when all have it",
			Benchmark: "Watches/watches=200", Spec: load.Spec{Load: load.LoadWatches, Streams: 200, Size: eventSize},
			Subjects: all, Reference: Stock, Metrics: []Metric{Events, Median, P99, Cores, PeakMemory},
		},
		{
			Name: "idle", Title: "one TCP connection on which nothing is sent",
			Benchmark: "Idle", Spec: load.Spec{Load: load.LoadIdle},
			Subjects: append([]string{PosternPaths}, all...), Reference: Stock, Metrics: []Metric{PeakMemory, PeakAnonymous, IdleCores},
		},
	}
}

// lossRate is the offered rate, in packets a second, for measuring loss: 112 Mbit/s. Every
// subject can carry that, so losses are not caused by a lack of processor time.
const lossRate = 10_000

// packetScenarios are those of UDP.
func packetScenarios() []Scenario {
	subjects := []string{Postern, Tsnet, WireGuardTUN, Stock, Loopback}
	var all []Scenario
	for _, size := range []int{64, 512, 1400} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("udp-%d", size), Title: fmt.Sprintf("UDP packets of %d bytes as fast as they are taken: those that arrive", size),
			Benchmark: fmt.Sprintf("UDP/bytes=%d", size), Spec: load.Spec{Load: load.LoadDatagrams, Size: size},
			Subjects: subjects, Reference: Stock, Metrics: []Metric{Packets, Throughput, Lost, Cores, PeakMemory},
		})
	}
	return append(all, Scenario{
		Name: "udp-loss", Title: "10,000 UDP packets of 1,400 bytes a second: those that are lost",
		Benchmark: "UDP/bytes=1400/rate=10000", Spec: load.Spec{Load: load.LoadDatagrams, Size: 1400, Rate: lossRate},
		Subjects: subjects, Metrics: []Metric{Lost, Packets, Cores, PeakMemory},
	})
}

// otherScenarios use no tunnel.
func otherScenarios() []Scenario {
	return []Scenario{{
		Name: "cipher", Title: "the limit: ChaCha20-Poly1305 seal and open of 1,420 B packets, on one core", Default: true,
		Benchmark: "Cipher/bytes=1420", Subjects: []string{Cipher}, Metrics: []Metric{Throughput, Efficiency},
	}}
}
