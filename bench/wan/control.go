package wan

import (
	"path"
	"time"

	"github.com/postern-dev/postern/bench"
)

const (
	// controlRate and controlRTT are those of a site's uplink, which limits what its workloads
	// send. Its queue is the minimum of a [Path], 21 ms at this rate.
	controlRate = 100e6
	controlRTT  = 20 * time.Millisecond
	// The window has 1,500 requests, so the 99th percentile is the fifteenth slowest.
	controlWindow = 30 * time.Second
	controlRuns   = 4
)

// Cells of the requests to an API server.
const (
	cellControlIdle = "control/idle"
	cellControlBusy = "control/busy"
)

// controlScenarios are those of package bench over a path. There the machine limits the
// workloads, here the path does.
func controlScenarios() (out []Scenario) {
	for _, cell := range []string{cellControlIdle, cellControlBusy} {
		s := named(cell, "50 requests a second to an API server over 100 Mbit/s, 20 ms, idle or beside four bulk streams, two each way, and 10,000 connections a minute to an imported service")
		s.Spec = bench.ControlSpec(cell == cellControlBusy)
		s.Benchmark = "WAN/control-" + path.Base(cell)
		s.Subjects, s.Reference = []string{bench.GatewaysControl, bench.GatewaysBeside}, ""
		s.asked = []string{bench.GatewaysBeside} // the cost of the busy machine alone
		s.Metrics = []bench.Metric{keyP99, keyP50}
		if s.Spec.Workloads != nil {
			s.Metrics = append(s.Metrics, bulk(), bench.Connections, bench.Cores)
		}
		s.Path, s.Runs, s.window = Path{RTT: controlRTT, Rate: controlRate}, controlRuns, controlWindow
		out = append(out, s)
	}
	return out
}

// controlRequirement compares the two.
func controlRequirement() bench.Requirement {
	cell := func(name string) bench.CellName {
		return bench.CellName{Scenario: scenarioName(name), Subject: bench.GatewaysControl}
	}
	return bench.Requirement{
		Name: "the API server's p99 beside workloads over that without", Metric: keyP99,
		Of: cell(cellControlBusy), To: cell(cellControlIdle), AtMost: 2,
	}
}
