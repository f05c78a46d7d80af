// Package metrics serves a gateway's metrics to Prometheus, and the liveness and readiness probes
// of a kubelet.
//
// A Collector creates the metrics from one snapshot for each scrape: the Status that other
// readers see, and the counters of other packages. Nothing is registered globally. Its rules
// (README.md, "In an outage"; Prometheus naming conventions):
//
//   - base units, bytes and seconds; counters end in _total;
//   - a series exists from the start and stays through an outage, so that rate() and
//     alerts are meaningful: a counter keeps its value, and a gauge without a value is
//     0 if that is true and NaN otherwise;
//   - labels are names from the configuration and words from fixed lists: never a key,
//     an endpoint or anything else that a stranger could invent.
package metrics

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/postern-dev/postern/control/api"
)

// Snapshot is the content of one scrape.
type Snapshot struct {
	Status   api.Status
	Counters Counters
}

// Counters are the totals that Status does not contain. The keys of the maps are label values; a
// caller includes all possible ones, even if they are 0.
type Counters struct {
	// RoundTrips of probes, in seconds, by peer.
	RoundTrips map[string]Histogram
	// STUNRequests by result: "success", "error", "timeout".
	STUNRequests map[string]uint64
	// AuthDecisions by result, such as "issued" and "denied".
	AuthDecisions map[string]uint64
	// TicketAlarms counts redemptions of a ticket by a second key.
	TicketAlarms uint64
	// Unrecorded counts log records that were left out because there were too many.
	Unrecorded uint64
	// NetstackDropped counts packets inside the tunnel, by reason.
	NetstackDropped map[string]uint64
	// UnderlayDropped counts datagrams on the UDP socket, by reason.
	UnderlayDropped map[string]uint64
	// Reloads of the configuration, by result: ReloadSuccess, ReloadError.
	Reloads map[string]uint64
	// Connections carried, and those refused by reason, each by direction.
	Connections        map[string]uint64
	RefusedConnections map[Refusal]uint64
	// OpenConnections by direction.
	OpenConnections map[string]int
	// UDPFlows, RefusedUDPFlows and OpenUDPFlows are the same for UDP flows.
	UDPFlows        map[string]uint64
	RefusedUDPFlows map[Refusal]uint64
	OpenUDPFlows    map[string]int
	// DroppedDatagrams of open flows, by reason.
	DroppedDatagrams map[string]uint64
	// Services is the use of cluster services, a bounded number of them. ReadyBackends is the
	// number of ready backends of each exported service, by name.
	Services      []Service
	ReadyBackends map[string]int
	// DNSQueries for names of such services, by response code or by the reason for no response;
	// nil if DNS is not served.
	DNSQueries map[string]uint64
}

// Histogram is a histogram of observed values.
type Histogram struct {
	Count uint64
	Sum   float64
	// Within counts the values that do not exceed the key.
	Within map[float64]uint64
}

// Service is a cluster service as a peer uses it, or as it is used at a peer.
type Service struct {
	Direction, Peer string
	// Name is NAMESPACE/NAME; empty for services that are not counted separately.
	Name                          string
	Open                          int
	Connections, RxBytes, TxBytes uint64
	Failures                      map[string]uint64 // by reason
}

// Refusal is why a connection or a UDP flow was refused, and in which direction.
type Refusal struct{ Direction, Reason string }

// Results of a reload.
const (
	ReloadSuccess = "success"
	ReloadError   = "error"
)

// Build is the content of postern_build_info.
type Build struct{ Version, Revision, GoVersion string }

// Collector creates metrics from snapshots. It is safe for concurrent use.
type Collector struct {
	build    Build
	snapshot func() Snapshot
	desc     descriptions

	mu sync.Mutex
	// told are the checks that have had a result. While a peer is away they have none, but their
	// series must not disappear.
	told map[checked]bool
}

// checked identifies a check.
type checked struct{ peer, target, direction string }

// NewCollector returns a collector; snapshot is called for each scrape.
func NewCollector(b Build, snapshot func() Snapshot) *Collector {
	return &Collector{build: b, snapshot: snapshot, desc: describe(), told: make(map[checked]bool)}
}

// NewRegistry returns a registry with the collector and those of the process and the Go runtime.
func NewRegistry(c *Collector) (*prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	for _, x := range []prometheus.Collector{c, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := r.Register(x); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.desc.all() {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.snapshot()
	e := emitter{ch}
	e.gauge(c.desc.build, 1, c.build.Version, c.build.Revision, c.build.GoVersion)
	c.collectPeers(e, s.Status.Peers)
	n := s.Counters
	for peer, h := range n.RoundTrips {
		e.histogram(c.desc.roundTrips, h, peer)
	}
	e.counters(c.desc.stun, n.STUNRequests)
	e.counters(c.desc.auth, n.AuthDecisions)
	e.counter(c.desc.alarms, n.TicketAlarms)
	e.counter(c.desc.unrecorded, n.Unrecorded)
	e.counters(c.desc.netstack, n.NetstackDropped)
	e.counters(c.desc.underlay, n.UnderlayDropped)
	reloads := map[string]uint64{ReloadSuccess: 0, ReloadError: 0}
	maps.Copy(reloads, n.Reloads)
	e.counters(c.desc.reloads, reloads)
	e.forwarded(c.desc.connections, c.desc.refused, c.desc.open, n.Connections, n.RefusedConnections, n.OpenConnections)
	e.forwarded(c.desc.udpFlows, c.desc.udpRefused, c.desc.udpOpen, n.UDPFlows, n.RefusedUDPFlows, n.OpenUDPFlows)
	e.counters(c.desc.udpDropped, n.DroppedDatagrams)
	c.collectServices(e, n.Services, n.ReadyBackends)
	e.counters(c.desc.dnsQueries, n.DNSQueries)
}

// collectServices emits the metrics of connections to cluster services.
func (c *Collector) collectServices(e emitter, list []Service, ready map[string]int) {
	for _, s := range list {
		labels := []string{s.Direction, s.Peer, s.Name}
		e.counter(c.desc.serviceConnections, s.Connections, labels...)
		e.gauge(c.desc.serviceOpen, float64(s.Open), labels...)
		e.counter(c.desc.serviceReceived, s.RxBytes, labels...)
		e.counter(c.desc.serviceTransmitted, s.TxBytes, labels...)
		for reason, v := range s.Failures {
			e.counter(c.desc.serviceFailures, v, s.Direction, s.Peer, s.Name, reason)
		}
	}
	for name, n := range ready {
		e.gauge(c.desc.serviceReady, float64(n), name)
	}
}

// forwarded emits the metrics of connections, or of UDP flows.
func (e emitter) forwarded(carried, refused, open *prometheus.Desc, n map[string]uint64, r map[Refusal]uint64, now map[string]int) {
	e.counters(carried, n)
	for r, v := range r {
		e.counter(refused, v, r.Direction, r.Reason)
	}
	for direction, v := range now {
		e.gauge(open, float64(v), direction)
	}
}

// collectPeers emits the metrics of the peers, and forgets removed ones.
func (c *Collector) collectPeers(e emitter, peers []api.PeerStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := make(map[string]bool, len(peers))
	for i := range peers {
		there[peers[i].Name] = true
		c.collectPeer(e, &peers[i])
	}
	maps.DeleteFunc(c.told, func(k checked, _ bool) bool { return !there[k.peer] })
}

// collectPeer emits the metrics of one peer. A peer that is not connected keeps all its series.
func (c *Collector) collectPeer(e emitter, p *api.PeerStatus) {
	e.counter(c.desc.received, p.RxBytes, p.Name)
	e.counter(c.desc.transmitted, p.TxBytes, p.Name)
	connected := 0.0
	if p.State == api.StateConnected {
		connected = 1
	}
	e.gauge(c.desc.connected, connected, p.Name)
	e.gauge(c.desc.state, 1, p.Name, oneOf(string(p.Shown()), "unknown", string(api.StateConnected), string(api.StateUnconfirmed),
		string(api.StateConnecting), string(api.StatePending), string(api.StateFailed)))
	handshake := 0.0 // never
	if p.LastHandshake != nil {
		handshake = unix(*p.LastHandshake)
	}
	e.gauge(c.desc.handshake, handshake, p.Name)
	e.gauge(c.desc.path, 1, p.Name, oneOf(p.Path.Kind, api.PathNone, api.PathDirect, api.PathRelay))
	rtt := math.NaN() // there is nothing to measure, and 0 would be the best value
	if p.Path.RTTSeconds > 0 && p.Path.Kind != api.PathNone {
		rtt = p.Path.RTTSeconds
	}
	e.gauge(c.desc.rtt, rtt, p.Name)
	mtu := math.NaN()
	if p.Path.MTU > 0 {
		mtu = float64(p.Path.MTU)
	}
	e.gauge(c.desc.pathMTU, mtu, p.Name)
	c.collectTraffic(e, p)
	if p.Identity != nil {
		e.gauge(c.desc.identity, unix(p.Identity.NotAfter), p.Name)
	}
	c.collectChecks(e, p.Name, api.DirectionOutbound, &p.Reachability.Outbound)
	c.collectChecks(e, p.Name, api.DirectionInbound, &p.Reachability.Inbound)
}

// collectTraffic emits what connections have measured of a peer's path.
func (c *Collector) collectTraffic(e emitter, p *api.PeerStatus) {
	var t api.Traffic
	if p.Path.Traffic != nil {
		t = *p.Path.Traffic
	}
	known := func(v float64, is bool) float64 {
		if !is {
			return math.NaN()
		}
		return v
	}
	e.gauge(c.desc.pathRate, known(t.BytesPerSecond, t.BytesPerSecond > 0), p.Name)
	e.gauge(c.desc.pathPolicer, known(t.PolicedBytesPerSecond, t.PolicedBytesPerSecond > 0), p.Name)
	e.gauge(c.desc.pathBaseRTT, known(t.BaseRTTSeconds, t.BaseRTTSeconds > 0), p.Name)
	e.gauge(c.desc.pathLoss, known(t.LossRatio, t.LossKnown()), p.Name, "ambient")
	e.gauge(c.desc.pathLoss, known(t.QueueLossRatio, t.LossKnown()), p.Name, "queue")
	e.gauge(c.desc.pathInFlight, float64(t.InFlightBytes), p.Name)
	e.gauge(c.desc.pathLimit, 1, p.Name, oneOf(t.LimitedBy, "none", api.LimitData, api.LimitBandwidth, api.LimitCongestion, api.LimitPolicer))
}

// unix converts a time to seconds since 1970.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// oneOf returns value if it is in the list, else other.
func oneOf(value, other string, list ...string) string {
	if slices.Contains(list, value) {
		return value
	}
	return other
}

// collectChecks emits the verdicts of one direction.
func (c *Collector) collectChecks(e emitter, peer, direction string, t *api.Targets) {
	for target, v := range map[string]*api.Verdict{
		api.ServiceAuth: &t.Auth, api.ServiceAPIServer: &t.APIServer, api.ServiceGateway: &t.Gateway} {
		verdict := oneOf(string(v.Verdict), string(api.Unknown), string(api.OK), string(api.Warning), string(api.Error), string(api.Off))
		code := v.Code
		if !isCode(code) {
			code = ""
		}
		e.gauge(c.desc.verdict, 1, peer, target, direction, verdict, code)

		k := checked{peer, target, direction}
		value, told := success(v)
		switch {
		case told:
			c.told[k] = true
		case v.Verdict == api.Off:
			delete(c.told, k)
		}
		if c.told[k] {
			e.gauge(c.desc.check, value, peer, target, direction)
		}
	}
}

// isCode reports whether a text is a possible code (docs/troubleshooting.md), because a peer may
// have invented it.
func isCode(s string) bool {
	digits, ok := strings.CutPrefix(s, "PST")
	return ok && len(digits) == 4 && strings.Trim(digits, "0123456789") == ""
}

// success returns 1 for a target that works, and 0 for one that fails or could not be tried
// because another check fails. Targets that are not offered or were never checked have no result.
func success(v *api.Verdict) (value float64, told bool) {
	switch v.Verdict {
	case api.OK, api.Warning:
		return 1, true
	case api.Error:
		return 0, true
	case api.Unknown:
		return 0, v.CheckedAt != nil
	}
	return 0, false
}

// emitter emits constant metrics.
type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.emit(d, prometheus.GaugeValue, v, labels)
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.emit(d, prometheus.CounterValue, float64(v), labels)
}

func (e emitter) counters(d *prometheus.Desc, values map[string]uint64) {
	for label, v := range values {
		e.counter(d, v, label)
	}
}

func (e emitter) histogram(d *prometheus.Desc, h Histogram, labels ...string) {
	m, err := prometheus.NewConstHistogram(d, h.Count, h.Sum, h.Within, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	e.ch <- m
}

// emit turns an invalid metric (a label that is not UTF-8) into a failed scrape instead of a
// panic.
func (e emitter) emit(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	e.ch <- m
}
