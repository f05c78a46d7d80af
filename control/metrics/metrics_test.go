package metrics

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected returns a snapshot in which every metric has a value.
func connected() Snapshot {
	at := time.Unix(1_700_000_000, 500_000_000)
	ok := api.Verdict{Verdict: api.OK, CheckedAt: &at}
	return Snapshot{
		Status: api.Status{Peers: []api.PeerStatus{{
			Name: "cloud", PublicKey: "Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyMDA=", Address: "fd12::1",
			State: api.StateConnected, LastHandshake: &at, RxBytes: 1000, TxBytes: 2000,
			Path:       api.Path{Kind: api.PathDirect, Remote: "198.51.100.7:51820", RTTSeconds: 0.012},
			Candidates: []api.Candidate{{Address: "198.51.100.7:51820"}},
			Identity:   &api.Identity{NotAfter: at},
			Reachability: api.Reachability{
				Outbound: api.Targets{Auth: ok, APIServer: api.Verdict{Verdict: api.Error, Code: "PST0301", CheckedAt: &at}, Gateway: ok},
				Inbound: api.Targets{Auth: api.Verdict{Verdict: api.Unknown}, APIServer: api.Verdict{Verdict: api.Off, CheckedAt: &at},
					Gateway: api.Verdict{Verdict: api.Unknown, CheckedAt: &at}},
			},
		}}},
		Counters: Counters{
			RoundTrips:         map[string]Histogram{"cloud": {Count: 3, Sum: 0.25, Within: map[float64]uint64{0.01: 1, 0.1: 2}}},
			STUNRequests:       map[string]uint64{"success": 3, "timeout": 1},
			AuthDecisions:      map[string]uint64{"issued": 2, "denied": 0},
			TicketAlarms:       1,
			NetstackDropped:    map[string]uint64{"malformed": 4},
			UnderlayDropped:    map[string]uint64{"unknown": 5},
			Reloads:            map[string]uint64{ReloadError: 1},
			Connections:        map[string]uint64{"inbound": 7},
			RefusedConnections: map[Refusal]uint64{{Direction: "inbound", Reason: "not_granted"}: 2},
			OpenConnections:    map[string]int{"inbound": 1},
			UDPFlows:           map[string]uint64{"inbound": 5},
			RefusedUDPFlows:    map[Refusal]uint64{{Direction: "outbound", Reason: "total_flow_limit"}: 4},
			OpenUDPFlows:       map[string]int{"inbound": 3},
			DroppedDatagrams:   map[string]uint64{"too_large": 6},
			Services: []Service{{Direction: "inbound", Peer: "cloud", Name: "shop/web", Open: 1, Connections: 9, RxBytes: 100, TxBytes: 200,
				Failures: map[string]uint64{"none_ready": 3}}, {Direction: "outbound", Peer: "cloud", Connections: 2}},
			ReadyBackends: map[string]int{"shop/web": 2},
			DNSQueries:    map[string]uint64{"NOERROR": 8},
		},
	}
}

// collector returns a collector of snap.
func collector(snap *Snapshot) *Collector {
	return NewCollector(Build{Version: "v1", Revision: "abc", GoVersion: "go1"}, func() Snapshot { return *snap })
}

func TestMetricsHaveTheValuesOfTheSnapshot(t *testing.T) {
	snap := connected()
	const want = `
# HELP postern_peer_last_handshake_timestamp_seconds Time of the last WireGuard handshake since the Unix epoch; 0 before the first.
# TYPE postern_peer_last_handshake_timestamp_seconds gauge
postern_peer_last_handshake_timestamp_seconds{peer="cloud"} 1.7000000005e+09
# HELP postern_peer_receive_bytes_total Bytes of WireGuard messages received from the peer.
# TYPE postern_peer_receive_bytes_total counter
postern_peer_receive_bytes_total{peer="cloud"} 1000
# HELP postern_peer_path_info Always 1; kind says how the peer is reached: direct, relay or none.
# TYPE postern_peer_path_info gauge
postern_peer_path_info{kind="direct",peer="cloud"} 1
# HELP postern_peer_rtt_seconds Round-trip time of the path in use; NaN while there is none.
# TYPE postern_peer_rtt_seconds gauge
postern_peer_rtt_seconds{peer="cloud"} 0.012
# HELP postern_check_success 1 when the last check of the target passed, 0 when it failed or is no longer known; absent for what is not offered or was never checked.
# TYPE postern_check_success gauge
postern_check_success{direction="inbound",peer="cloud",target="gateway"} 0
postern_check_success{direction="outbound",peer="cloud",target="apiServer"} 0
postern_check_success{direction="outbound",peer="cloud",target="auth"} 1
postern_check_success{direction="outbound",peer="cloud",target="gateway"} 1
# HELP postern_check_verdict_info Always 1; verdict is ok, warning, error, unknown or off, and code says why it is not ok.
# TYPE postern_check_verdict_info gauge
postern_check_verdict_info{code="",direction="inbound",peer="cloud",target="apiServer",verdict="off"} 1
postern_check_verdict_info{code="",direction="inbound",peer="cloud",target="auth",verdict="unknown"} 1
postern_check_verdict_info{code="",direction="inbound",peer="cloud",target="gateway",verdict="unknown"} 1
postern_check_verdict_info{code="",direction="outbound",peer="cloud",target="auth",verdict="ok"} 1
postern_check_verdict_info{code="",direction="outbound",peer="cloud",target="gateway",verdict="ok"} 1
postern_check_verdict_info{code="PST0301",direction="outbound",peer="cloud",target="apiServer",verdict="error"} 1
# HELP postern_peer_connected 1 while the peer is connected: it gave an authenticated answer recently; else 0.
# TYPE postern_peer_connected gauge
postern_peer_connected{peer="cloud"} 1
# HELP postern_peer_state_info Always 1; state is connected, unconfirmed (connected, but the last packets sent are unanswered), connecting, pending or failed.
# TYPE postern_peer_state_info gauge
postern_peer_state_info{peer="cloud",state="connected"} 1
# HELP postern_peer_identity_expiry_timestamp_seconds When the identity for the peer's API server expires, since the Unix epoch; absent without one.
# TYPE postern_peer_identity_expiry_timestamp_seconds gauge
postern_peer_identity_expiry_timestamp_seconds{peer="cloud"} 1.7000000005e+09
# HELP postern_reloads_total Reloads of the configuration by result.
# TYPE postern_reloads_total counter
postern_reloads_total{result="error"} 1
postern_reloads_total{result="success"} 0
# HELP postern_ticket_alarms_total Redemptions of a ticket with a second key.
# TYPE postern_ticket_alarms_total counter
postern_ticket_alarms_total 1
# HELP postern_dns_queries_total Queries for names of services of clusters, by the response code that they got, or why they got none.
# TYPE postern_dns_queries_total counter
postern_dns_queries_total{result="NOERROR"} 8
# HELP postern_peer_probe_rtt_seconds Round trips of probes over the paths that were in use.
# TYPE postern_peer_probe_rtt_seconds histogram
postern_peer_probe_rtt_seconds_bucket{peer="cloud",le="0.01"} 1
postern_peer_probe_rtt_seconds_bucket{peer="cloud",le="0.1"} 2
postern_peer_probe_rtt_seconds_bucket{peer="cloud",le="+Inf"} 3
postern_peer_probe_rtt_seconds_sum{peer="cloud"} 0.25
postern_peer_probe_rtt_seconds_count{peer="cloud"} 3
# HELP postern_service_connections_total Connections and UDP flows to services of clusters, by direction, peer and service; an empty service is all others of the peer.
# TYPE postern_service_connections_total counter
postern_service_connections_total{direction="inbound",peer="cloud",service="shop/web"} 9
postern_service_connections_total{direction="outbound",peer="cloud",service=""} 2
# HELP postern_service_failures_total Connections and UDP flows to services of clusters that were not carried, by reason.
# TYPE postern_service_failures_total counter
postern_service_failures_total{direction="inbound",peer="cloud",reason="none_ready",service="shop/web"} 3
# HELP postern_service_ready_backends Backends of a service of this cluster that are ready.
# TYPE postern_service_ready_backends gauge
postern_service_ready_backends{service="shop/web"} 2
# HELP postern_service_transmit_bytes_total Bytes of them sent to the peer.
# TYPE postern_service_transmit_bytes_total counter
postern_service_transmit_bytes_total{direction="inbound",peer="cloud",service="shop/web"} 200
postern_service_transmit_bytes_total{direction="outbound",peer="cloud",service=""} 0
`
	err := testutil.CollectAndCompare(collector(&snap), strings.NewReader(want),
		"postern_peer_last_handshake_timestamp_seconds", "postern_peer_receive_bytes_total", "postern_peer_path_info",
		"postern_peer_connected", "postern_peer_state_info", "postern_peer_identity_expiry_timestamp_seconds",
		"postern_peer_rtt_seconds", "postern_peer_probe_rtt_seconds", "postern_check_success", "postern_check_verdict_info", "postern_reloads_total", "postern_ticket_alarms_total",
		"postern_dns_queries_total", "postern_service_connections_total", "postern_service_failures_total", "postern_service_ready_backends", "postern_service_transmit_bytes_total")
	if err != nil {
		t.Error(err)
	}
}

// TestSeriesStayWhileAPeerIsAway loses a peer in each possible way.
func TestSeriesStayWhileAPeerIsAway(t *testing.T) {
	never := api.Targets{Auth: api.Verdict{Verdict: api.Unknown}, APIServer: api.Verdict{Verdict: api.Unknown}, Gateway: api.Verdict{Verdict: api.Unknown}}
	for name, lose := range map[string]func(p *api.PeerStatus){
		"checks fail": func(p *api.PeerStatus) {
			failed := api.Verdict{Verdict: api.Error, CheckedAt: p.LastHandshake}
			waits := api.Verdict{Verdict: api.Unknown, CheckedAt: p.LastHandshake}
			p.Reachability.Outbound = api.Targets{Gateway: failed, Auth: waits, APIServer: waits}
		},
		"nothing is known any more": func(p *api.PeerStatus) {
			p.Reachability = api.Reachability{Outbound: never, Inbound: never}
		},
		"never connected again": func(p *api.PeerStatus) { p.LastHandshake = nil },
	} {
		t.Run(name, func(t *testing.T) {
			snap := connected()
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(collector(&snap))
			before := series(t, reg)
			p := &snap.Status.Peers[0]
			lose(p)
			p.State, p.Path = api.StateFailed, api.Path{}
			after := series(t, reg)
			for name := range before {
				if after[name] != before[name] {
					t.Errorf("%s has %d series while the peer is away, had %d", name, after[name], before[name])
				}
			}
		})
	}
}

func TestCheckThatNobodyCanTellAnyMoreFails(t *testing.T) {
	snap := connected()
	c := collector(&snap)
	var registry prometheus.Registerer = prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	targets := &snap.Status.Peers[0].Reachability.Inbound
	value := func() string {
		t.Helper()
		families, err := registry.(prometheus.Gatherer).Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "postern_check_success" {
				continue
			}
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == api.DirectionInbound && m.GetLabel()[2].GetValue() == api.ServiceAuth {
					return strconv.FormatFloat(m.GetGauge().GetValue(), 'f', -1, 64)
				}
			}
		}
		return "absent"
	}
	for _, step := range []struct {
		why  string
		v    api.Verdict
		want string
	}{
		{"no report yet", api.Verdict{Verdict: api.Unknown}, "absent"},
		{"reported fine", api.Verdict{Verdict: api.OK}, "1"},
		{"reported with a warning", api.Verdict{Verdict: api.Warning}, "1"},
		{"the report is too old", api.Verdict{Verdict: api.Unknown}, "0"},
		{"reported as failing", api.Verdict{Verdict: api.Error}, "0"},
		{"not offered any more", api.Verdict{Verdict: api.Off}, "absent"},
		{"offered again, no report yet", api.Verdict{Verdict: api.Unknown}, "absent"},
	} {
		targets.Auth = step.v
		if got := value(); got != step.want {
			t.Errorf("%s: got %s, want %s", step.why, got, step.want)
		}
	}
	// The counters of a peer that is removed and joins again start at zero.
	targets.Auth = api.Verdict{Verdict: api.OK}
	value()
	peers := snap.Status.Peers
	snap.Status.Peers = nil
	value()
	snap.Status.Peers = peers
	targets.Auth = api.Verdict{Verdict: api.Unknown}
	if got := value(); got != "absent" {
		t.Errorf("after the peer was removed and added: got %s", got)
	}
}

func TestRTTIsNotANumberWithoutAPath(t *testing.T) {
	snap := connected()
	snap.Status.Peers[0].Path.Kind = api.PathNone // with the last round trip still set
	const want = `
# HELP postern_peer_rtt_seconds Round-trip time of the path in use; NaN while there is none.
# TYPE postern_peer_rtt_seconds gauge
postern_peer_rtt_seconds{peer="cloud"} NaN
`
	if err := testutil.CollectAndCompare(collector(&snap), strings.NewReader(want), "postern_peer_rtt_seconds"); err != nil {
		t.Error(err)
	}
}

func TestALossOfFewPacketsIsNotTold(t *testing.T) {
	for sample, want := range map[int64]string{999: "NaN", 1000: "0.01"} {
		snap := connected()
		snap.Status.Peers[0].Path.Traffic = &api.Traffic{BytesPerSecond: 1e6, LossRatio: 0.01, QueueLossRatio: 0.01, LossSample: sample}
		want := strings.ReplaceAll(`
# HELP postern_peer_path_loss_ratio Share of the packets to the peer that are lost, by cause: ambient at any rate, queue in full queues; NaN while fewer than 1000 were counted.
# TYPE postern_peer_path_loss_ratio gauge
postern_peer_path_loss_ratio{cause="ambient",peer="cloud"} VALUE
postern_peer_path_loss_ratio{cause="queue",peer="cloud"} VALUE
`, "VALUE", want)
		if err := testutil.CollectAndCompare(collector(&snap), strings.NewReader(want), "postern_peer_path_loss_ratio"); err != nil {
			t.Error(err)
		}
	}
}

// A connected peer that has stopped answering is shown as unconfirmed.
func TestAnUnconfirmedPeerHasAStateOfItsOwn(t *testing.T) {
	snap := connected()
	snap.Status.Peers[0].UnconfirmedSince = new(time.Now())
	const want = `
# HELP postern_peer_state_info Always 1; state is connected, unconfirmed (connected, but the last packets sent are unanswered), connecting, pending or failed.
# TYPE postern_peer_state_info gauge
postern_peer_state_info{peer="cloud",state="unconfirmed"} 1
`
	if err := testutil.CollectAndCompare(collector(&snap), strings.NewReader(want), "postern_peer_state_info"); err != nil {
		t.Error(err)
	}
}

// TestLabelsComeFromFixedLists uses a status with invented words.
func TestLabelsComeFromFixedLists(t *testing.T) {
	snap := connected()
	p := &snap.Status.Peers[0]
	p.State, p.Path.Kind = "sideways", "10.0.0.1:1"
	for _, code := range []string{"PST01", "PST01234", "PST0x01", "rm -rf /", "198.51.100.7:51820"} {
		p.Reachability.Outbound.Auth = api.Verdict{Verdict: "made-up", Code: code}
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(collector(&snap))
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if slices.Contains([]string{"sideways", "10.0.0.1:1", "made-up", code}, l.GetValue()) {
						t.Errorf("%s{%s=%q} is not of a fixed list", f.GetName(), l.GetName(), l.GetValue())
					}
				}
			}
		}
	}
}

// series returns the number of series of each metric.
func series(t *testing.T, g prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for _, f := range families {
		n[f.GetName()] = len(f.GetMetric())
	}
	return n
}

func TestNoLabelHoldsAKeyOrAnAddress(t *testing.T) {
	snap := connected()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(collector(&snap))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	p := snap.Status.Peers[0]
	checked := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				checked++
				for _, secret := range []string{p.PublicKey, p.Address, p.Path.Remote} {
					if strings.Contains(l.GetValue(), secret) {
						t.Errorf("%s{%s=%q} holds %s", f.GetName(), l.GetName(), l.GetValue(), secret)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no label was looked at")
	}
}

func TestReadmeListsEveryMetric(t *testing.T) {
	snap := connected()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(collector(&snap))
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for line := range strings.Lines(string(readme)) {
		if name, ok := strings.CutPrefix(line, "| `postern_"); ok {
			name, _, _ = strings.Cut(name, "`")
			name, _, _ = strings.Cut(name, "{")
			listed["postern_"+name] = true
		}
	}
	emitted := series(t, reg)
	for name := range emitted {
		if !listed[name] {
			t.Errorf("README.md does not list %s", name)
		}
	}
	for name := range listed {
		if emitted[name] == 0 {
			t.Errorf("README.md lists %s, which is not emitted", name)
		}
	}
	if want := len(describe().all()); len(emitted) != want {
		t.Errorf("the snapshot of this test emits %d of %d metrics", len(emitted), want)
	}
}
