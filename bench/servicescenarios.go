package bench

import "github.com/postern-dev/postern/bench/load"

// serviceScenarios measure services whose clients do not know of the tunnel: they connect to a
// local listener, and the service behind the tunnel uses the kernel's TCP.
func serviceScenarios() []Scenario {
	subjects := []string{GatewaysNamed, GatewaysImported, TsnetProxy, RemoteDialer, Loopback}
	return []Scenario{
		{
			Name: "service-download", Title: "one TCP stream from a service to its client", Default: true,
			Benchmark: "Service/streams=1/direction=reverse", Spec: load.Spec{Streams: 1, Direction: load.Reverse},
			Subjects: subjects, Reference: GatewaysNamed, Metrics: []Metric{Throughput, Efficiency, Cores, PeakMemory},
		},
		{
			Name: "service-requests", Title: "500 HTTP/1.1 requests a second to a service, for 4 KiB, on 4 connections that are kept", Default: true,
			Benchmark: "Service/HTTP/bytes=4096/rate=500",
			Spec:      load.Spec{Load: load.LoadRequests, Size: objectSize, Streams: 4, Rate: 500},
			Subjects:  subjects, Reference: GatewaysNamed, Metrics: []Metric{P99, Median, Cores, PeakMemory},
		},
		{
			Name: "service-connections", Title: "new TCP connections to a service by 4 clients: connect, a byte each way, close",
			Benchmark: "Service/Connections/clients=4", Spec: load.Spec{Load: load.LoadConnections, Streams: 4},
			Subjects: subjects, Reference: GatewaysNamed, Metrics: []Metric{Connections, Median, P99, Cores, PeakMemory},
		},
		{
			Name: "control-idle", Title: "50 requests a second to an API server on 4 connections, and nothing beside them", Default: true,
			Benchmark: "Control/rate=50", Spec: ControlSpec(false),
			Subjects: []string{GatewaysControl, GatewaysBeside}, Metrics: []Metric{P99, Median, Cores, PeakMemory},
		},
		{
			Name: "control-busy", Title: "the same beside four bulk streams, two each way, and 10,000 connections a minute to an imported service", Default: true,
			Benchmark: "Control/rate=50/streams=4/connections=10000", Spec: ControlSpec(true),
			Subjects: []string{GatewaysControl, GatewaysBeside}, Metrics: []Metric{P99, Median, Bulk, Connections, Cores, PeakMemory},
		},
	}
}

// ControlSpec describes requests to an API server, beside workloads if busy.
func ControlSpec(busy bool) load.Spec {
	s := load.Spec{Load: load.LoadRequests, Size: objectSize, Streams: 4, Rate: 50}
	if busy {
		s.Workloads = &load.Workloads{Streams: 4, Connections: 10_000. / 60}
	}
	return s
}

// serviceRequirements are the promises about these scenarios.
func serviceRequirements() []Requirement {
	const download, requests = "service-download", "service-requests"
	return []Requirement{
		{
			Name: "an imported service's throughput over a named one's", Metric: Throughput,
			Of: CellName{download, GatewaysImported}, To: CellName{download, GatewaysNamed}, AtLeast: 0.9,
		},
		{
			Name: "what an imported service adds to the p99 of a named one's requests", Metric: P99, By: ByDifference,
			Of: CellName{requests, GatewaysImported}, To: CellName{requests, GatewaysNamed}, AtMost: 150e-6,
		},
		{
			Name: "the API server's p99 beside workloads over that without", Metric: P99,
			Of: CellName{"control-busy", GatewaysControl}, To: CellName{"control-idle", GatewaysControl}, AtMost: 2,
		},
	}
}
