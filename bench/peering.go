package bench

import "github.com/postern-dev/postern/bench/load"

// The loads of a live peering, which its gateway generates on request.
const (
	PeerOverlay    = "overlay"    // echoes between the two gateways
	PeerAuth       = "auth"       // new connections to the peer's auth service
	PeerAPIServer  = "apiServer"  // new connections to the peer's API server
	PeerThroughput = "throughput" // one stream to the peer and one from it
)

// Units of a peering's measurements, besides those of package load.
const (
	UnitLeast      = "min-sec"
	UnitGreatest   = "max-sec"
	UnitUnanswered = "unanswered-ratio"
	UnitTo         = "to-bit/s"
	UnitFrom       = "from-bit/s"
)

// PeerScenarios are the scenarios of a live peering. Their subject is the peer's name.
func PeerScenarios() []Scenario {
	named := func(unit string) func(load.Result) float64 {
		return func(r load.Result) float64 { return r.Values[unit] }
	}
	delay := func(unit, name string) Metric {
		return Metric{Name: name + " delay", Unit: unit, Better: Lower, Of: named(unit), Scale: 1e3, Digits: 2, TableUnit: name + " ms"}
	}
	rate := func(unit, name string) Metric {
		return Metric{Name: "throughput " + name + " the peer", Unit: unit, Better: Higher, Of: named(unit), Scale: 1e-6, Digits: 1, TableUnit: "Mbit/s " + name + " it"}
	}
	delays := []Metric{
		delay(load.UnitMedian, "median"), delay(UnitLeast, "least"), delay(UnitGreatest, "greatest"),
		{Name: "unanswered", Unit: UnitUnanswered, Better: Lower, Of: named(UnitUnanswered), Zero: true, Scale: 100, TableUnit: "% unanswered"},
	}
	scenario := func(name, title string, metrics []Metric) Scenario {
		return Scenario{Name: "peer-" + name, Title: title, Benchmark: "Peer/" + name, Spec: load.Spec{Load: name}, Metrics: metrics}
	}
	return []Scenario{
		scenario(PeerOverlay, "echoes between the gateways, through the tunnel", delays),
		scenario(PeerAuth, "new connections to the peer's auth service, through the tunnel", delays),
		scenario(PeerAPIServer, "new connections to the peer's API server, through the tunnel", delays),
		scenario(PeerThroughput, "one stream to the peer's gateway, then one from it, at most a second each",
			[]Metric{rate(UnitTo, "to"), rate(UnitFrom, "from")}),
	}
}
