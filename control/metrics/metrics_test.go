package metrics

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected is a snapshot in which every metric has a value.
func connected() Snapshot {
	at := time.Unix(1_700_000_000, 500_000_000)
	ok := api.Verdict{Verdict: api.OK, CheckedAt: &at}
	return Snapshot{
		Status: api.Status{Peers: []api.PeerStatus{{
			Name: "cloud", PublicKey: "Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyMDA=", Address: "fd12::1",
			State: api.StateConnected, LastHandshake: &at, RxBytes: 1000, TxBytes: 2000,
			Path:       api.Path{Kind: api.PathDirect, Remote: "198.51.100.7:51820", RTTSeconds: 0.012},
			Candidates: []api.Candidate{{Address: "198.51.100.7:51820"}},
			Reachability: api.Reachability{
				Outbound: api.Targets{Auth: ok, APIServer: api.Verdict{Verdict: api.Error, CheckedAt: &at}, Gateway: ok},
				Inbound: api.Targets{Auth: api.Verdict{Verdict: api.Unknown}, APIServer: api.Verdict{Verdict: api.Off, CheckedAt: &at},
					Gateway: api.Verdict{Verdict: api.Unknown, CheckedAt: &at}},
			},
		}}},
		Counters: Counters{
			STUNRequests:       map[string]uint64{"success": 3, "timeout": 1},
			AuthDecisions:      map[string]uint64{"issued": 2, "denied": 0},
			TicketAlarms:       1,
			NetstackDropped:    map[string]uint64{"malformed": 4},
			UnderlayDropped:    map[string]uint64{"unknown": 5},
			Reloads:            map[string]uint64{ReloadError: 1},
			Connections:        map[string]uint64{"inbound": 7},
			RefusedConnections: map[Refusal]uint64{{Direction: "inbound", Reason: "not_granted"}: 2},
			OpenConnections:    map[string]int{"inbound": 1},
		},
	}
}

// collector serves what snap points at.
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
# HELP postern_peer_rtt_seconds Round-trip time of the path in use.
# TYPE postern_peer_rtt_seconds gauge
postern_peer_rtt_seconds{peer="cloud"} 0.012
# HELP postern_check_success 1 when the last check of the target passed, 0 when it failed or waits for one that fails; absent for what is not offered or was never checked.
# TYPE postern_check_success gauge
postern_check_success{direction="inbound",peer="cloud",target="gateway"} 0
postern_check_success{direction="outbound",peer="cloud",target="apiServer"} 0
postern_check_success{direction="outbound",peer="cloud",target="auth"} 1
postern_check_success{direction="outbound",peer="cloud",target="gateway"} 1
# HELP postern_reloads_total Times the configuration was read again by result.
# TYPE postern_reloads_total counter
postern_reloads_total{result="error"} 1
postern_reloads_total{result="success"} 0
# HELP postern_ticket_alarms_total Redemptions of a ticket with a second key.
# TYPE postern_ticket_alarms_total counter
postern_ticket_alarms_total 1
`
	err := testutil.CollectAndCompare(collector(&snap), strings.NewReader(want),
		"postern_peer_last_handshake_timestamp_seconds", "postern_peer_receive_bytes_total", "postern_peer_path_info",
		"postern_peer_rtt_seconds", "postern_check_success", "postern_reloads_total", "postern_ticket_alarms_total")
	if err != nil {
		t.Error(err)
	}
}

func TestCountersStayWhileAPeerIsAway(t *testing.T) {
	snap := connected()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(collector(&snap))
	before := series(t, reg)

	p := &snap.Status.Peers[0]
	failed := api.Verdict{Verdict: api.Error, CheckedAt: p.LastHandshake}
	waits := api.Verdict{Verdict: api.Unknown, CheckedAt: p.LastHandshake}
	p.State, p.LastHandshake, p.Path = api.StateFailed, nil, api.Path{}
	p.Reachability.Outbound = api.Targets{Gateway: failed, Auth: waits, APIServer: waits}
	after := series(t, reg)

	for name := range before {
		if name == "postern_peer_rtt_seconds" { // has no value without a path
			continue
		}
		if after[name] != before[name] {
			t.Errorf("%s has %d series while the peer is away, had %d", name, after[name], before[name])
		}
	}
}

// series counts the series of each metric.
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

func TestMetricsFollowTheNamingConventions(t *testing.T) {
	snap := connected()
	problems, err := testutil.CollectAndLint(collector(&snap))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
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
