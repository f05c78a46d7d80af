package bench

import (
	"github.com/postern-dev/postern/bench/binary"
	"github.com/postern-dev/postern/bench/load"
)

// Metrics of gateways that run as processes.
var (
	JoinTime = Metric{
		Name: "join", Unit: binary.UnitJoin, Better: Lower, Of: func(r load.Result) float64 { return r.Values[binary.UnitJoin] },
		Scale: 1e3, Digits: 0, TableUnit: "ms join",
	}
	EventP99 = Metric{
		Name: "99th percentile of the events' delay", Unit: load.UnitEventP99, Better: Lower, Of: valueOf(load.UnitEventP99),
		Scale: 1e6, Digits: 0, TableUnit: "event p99 µs",
	}
	WireRate = Metric{
		Name: "on the wire, both ways", Unit: "wire-bit/s", Better: Lower,
		Of:    func(r load.Result) float64 { return r.Values[binary.UnitWire] * 8 / max(r.Seconds, 1e-9) },
		Scale: 1e-6, Digits: 2, TableUnit: "Mbit/s wire",
	}
	Throttled = Metric{
		Name: "periods throttled", Unit: "throttled-ratio", Better: Lower, Zero: true,
		Of:    func(r load.Result) float64 { return r.Values[binary.UnitThrottled] / r.Values[binary.UnitPeriods] },
		Scale: 100, Digits: 0, TableUnit: "% throttled",
	}
)

// binaryScenarios measure the program that users run. Cores and memory are those of the two
// gateway processes. For subjects that run in the load's process they include the load.
func binaryScenarios() []Scenario {
	subjects := []string{PosternBinary, WireGuardGo, WireGuardTUN, Loopback}
	return []Scenario{
		{
			Name: "binary-tcp-1", Title: "one TCP stream through two gateways: local listener, tunnel, named service", Default: true,
			Benchmark: "Binary/streams=1", Spec: load.Spec{Streams: 1},
			Subjects: append([]string{PosternBinary, Postern64MiB}, subjects[1:]...), Reference: WireGuardGo,
			Metrics: []Metric{Throughput, Cores, PeakMemory, PeakAnonymous},
		},
		{
			Name: "binary-mtu-8920", Title: "one TCP stream through two gateways whose links carry jumbo frames",
			Benchmark: "Binary/streams=1/mtu=8920", Spec: load.Spec{Streams: 1, MTU: 8920},
			Subjects: []string{PosternBinary, WireGuardGo, WireGuardTUN}, Reference: WireGuardGo,
			Metrics: []Metric{Throughput, Cores, PeakMemory, PeakAnonymous},
		},
		{
			Name: "binary-requests", Title: "HTTP/1.1 requests for an object of 4 KiB through two gateways, one after the other",
			Benchmark: "Binary/HTTP/bytes=4096", Spec: load.Spec{Load: load.LoadRequests, Size: objectSize},
			Subjects: subjects, Reference: Loopback, Metrics: []Metric{Median, P99, P999, Requests, Cores, PeakMemory},
		},
		{
			Name: "binary-requests-busy", Title: "100 HTTP/1.1 requests a second on 4 connections through two gateways, beside one bulk stream",
			Benchmark: "Binary/HTTP/bytes=4096/bulk=1",
			Spec:      load.Spec{Load: load.LoadRequests, Size: objectSize, Streams: 4, Rate: 100, Busy: true},
			Subjects:  subjects, Reference: WireGuardGo, Metrics: []Metric{P99, Median, Bulk, Cores, PeakMemory},
		},
		{
			Name: "binary-connections", Title: "new TCP connections by 4 clients through two gateways: connect, a byte each way, close",
			Benchmark: "Binary/Connections/clients=4", Spec: load.Spec{Load: load.LoadConnections, Streams: 4},
			Subjects: subjects, Reference: Loopback, Metrics: []Metric{Connections, Median, P99, Cores, PeakMemory},
		},
		{
			Name: "binary-join", Title: "from `postern join` to connected, and to the first byte at the named service",
			Benchmark: "Binary/Join", Spec: load.Spec{Load: load.LoadFirstByte},
			Subjects: []string{PosternBinary, PosternSmall}, Reference: PosternBinary, Metrics: []Metric{JoinTime, FirstByte, PeakMemory},
		},
		{
			Name: "small", Title: "a control plane: 50 requests a second on 4 connections beside 200 watches, two of each of 100 pods that change every 5 s; objects of 4 KiB", Default: true,
			Benchmark: "Binary/ControlPlane/watches=200/rate=50",
			Spec:      load.Spec{Load: load.LoadRequests, Size: objectSize, Streams: 4, Rate: 50, Watches: 200},
			Subjects:  []string{PosternSmall, PosternRoomy}, Reference: PosternRoomy,
			Metrics: []Metric{P99, Median, EventP99, WireRate, Throttled, Cores, PeakMemory},
		},
	}
}

// binaryRequirements are the promises about these scenarios.
func binaryRequirements() []Requirement {
	through, bounded := CellName{"binary-tcp-1", PosternBinary}, CellName{"binary-tcp-1", Postern64MiB}
	return []Requirement{
		{
			Name: "one stream through two gateways over two wireguard-go processes' with TUN", Metric: Throughput,
			Of: through, To: CellName{"binary-tcp-1", WireGuardGo}, AtLeast: 1.3,
		},
		{Name: "one stream with 64 MiB for each gateway over one without a limit", Metric: Throughput, Of: bounded, To: through, AtLeast: 0.5},
		{
			Name: "the control plane's p99 with half a core and 64 MiB for each gateway over that without limits", Metric: P99,
			Of: CellName{"small", PosternSmall}, To: CellName{"small", PosternRoomy}, AtMost: 2,
		},
	}
}
