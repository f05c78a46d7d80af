package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// statusFields are the fields of a status that scripts rely on, by their path; [] is each
// element of a list.
var statusFields = strings.Fields(`
	apiVersion kind gateway.name gateway.publicKey gateway.address gateway.version gateway.listenPort gateway.startedAt
	gateway.nat.mapping gateway.nat.filtering gateway.nat.publicAddresses gateway.candidates[].address gateway.candidates[].source
	peers[].name peers[].publicKey peers[].address peers[].mode peers[].state peers[].version peers[].allow peers[].offers
	peers[].path.kind peers[].path.remote peers[].path.source peers[].path.rttSeconds peers[].path.since peers[].path.reason
	peers[].path.mtu peers[].path.history[].at peers[].path.history[].event peers[].path.history[].reason
	peers[].candidates[].address peers[].candidates[].source peers[].candidates[].state peers[].candidates[].reason
	peers[].identity.notAfter peers[].flows[].direction peers[].flows[].service peers[].flows[].remote peers[].flows[].rxBytes
	peers[].flows[].txBytes peers[].flows[].startedAt peers[].local[].service peers[].local[].address
	peers[].lastHandshake peers[].rxBytes peers[].txBytes peers[].rxBytesPerSecond peers[].txBytesPerSecond
	peers[].reachability.outbound.auth.verdict peers[].reachability.outbound.apiServer.rttSeconds
	peers[].reachability.outbound.gateway.checkedAt peers[].reachability.outbound.gateway.via
	peers[].reachability.inbound.auth.verdict peers[].reachability.inbound.apiServer.checkedAt peers[].reachability.inbound.gateway.via`)

// fieldPaths collects the paths of a document's fields; null is one of a value that is
// null.
func fieldPaths(at string, v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			fieldPaths(strings.TrimPrefix(at+"."+k, "."), x, into)
		}
	case []any:
		into[at] = true
		for _, x := range v {
			fieldPaths(at+"[]", x, into)
		}
	case nil:
		into[at+" null"] = true
	default:
		into[at] = true
	}
}

func documentPaths(t *testing.T, v any) map[string]bool {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	fieldPaths("", doc, paths)
	for p := range paths {
		if strings.HasSuffix(p, " null") {
			t.Errorf("%s", p)
		}
	}
	return paths
}

func TestTheStatusHasEveryField(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		switch {
		case p.Identity == nil:
			return "no identity yet"
		case len(p.Path.History) == 0:
			return "no path is recorded"
		case p.Path.RTTSeconds == 0 || p.Reachability.Outbound.APIServer.Verdict != api.OK:
			return "the checks are not done"
		case p.Reachability.Inbound.APIServer.Verdict != api.OK:
			return "cloud has not reported that all is well"
		}
		return ""
	})
	w.await("edge knows its NAT", func() string {
		st, err := w.Edge.Gateway.Status(w.ctx)
		if err != nil || st.Gateway.NAT.Mapping == "unknown" || len(st.Gateway.NAT.PublicAddresses) == 0 {
			return fmt.Sprintf("it is %+v (%v)", st.Gateway.NAT, err)
		}
		return ""
	})
	if err := s.echo("so that there is a flow"); err != nil {
		t.Fatal(err)
	}
	var st api.Status
	w.await("the status has every field", func() string { // some are reported by cloud, or probed
		var err error
		if st, err = w.Edge.Gateway.Status(w.ctx); err != nil {
			t.Fatal(err)
		}
		paths := documentPaths(t, st)
		missing := slices.DeleteFunc(slices.Clone(statusFields), func(f string) bool { return paths[f] })
		if len(missing) > 0 {
			return fmt.Sprintf("it has no %v, but %v", missing, slices.Sorted(maps.Keys(paths)))
		}
		return ""
	})
	if got := st.Gateway; got.Name != "edge" || got.NAT.Mapping != "endpoint-independent" || got.NAT.PublicAddresses[0] != "198.51.100.7" || got.ListenPort != 51820 {
		t.Errorf("edge describes itself as %+v", got)
	}
}

func TestListsOfAStatusAreNeverNull(t *testing.T) {
	w := newWorld(t)
	for what, change := range map[string]func(*api.GatewaySpec){
		"alone":                    func(*api.GatewaySpec) {},
		"with a peer that is away": func(g *api.GatewaySpec) { g.Peers = []api.Peer{{Name: "away", PublicKey: newKey(t).Public().String()}} },
		"with a plain WireGuard peer": func(g *api.GatewaySpec) {
			g.Peers = []api.Peer{{Name: "router", PublicKey: newKey(t).Public().String(), Stock: true, AllowedIPs: []string{"10.9.0.2/32"}, Labels: map[string]string{"region": "eu"}}}
		},
	} {
		w.mustEdit(w.Cloud, change)
		st, err := w.Cloud.Gateway.Status(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		paths := documentPaths(t, st)
		lists := []string{"peers", "gateway.candidates", "gateway.nat.publicAddresses"}
		if len(st.Peers) > 0 {
			for _, l := range []string{"allow", "offers", "local", "candidates", "flows", "path.history"} {
				lists = append(lists, "peers[]."+l)
			}
		}
		for _, p := range st.Peers {
			if want := map[string]string{"router": "eu"}[p.Name]; p.Labels["region"] != want {
				t.Errorf("%s has the labels %v, want the region %q", p.Name, p.Labels, want)
			}
		}
		for _, l := range lists {
			if !paths[l] {
				t.Errorf("%s: the status has no list %s", what, l)
			}
		}
	}
}

func TestMetricsTellOfPeersFromTheStart(t *testing.T) {
	w := newWorld(t)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = []api.Peer{{Name: "away", PublicKey: newKey(t).Public().String()}} })
	w.peer()
	w.apiServerVerdict(w.Cloud, "edge", api.OK)
	var text string
	wanted := []string{
		`postern_build_info{`, `version="test"`,
		`postern_peer_receive_bytes_total{peer="away"} 0`, `postern_peer_transmit_bytes_total{peer="edge"} `,
		`postern_peer_last_handshake_timestamp_seconds{peer="away"} 0`, `postern_peer_last_handshake_timestamp_seconds{peer="edge"} 1.`,
		`postern_peer_path_info{kind="direct",peer="edge"} 1`, `postern_peer_path_info{kind="none",peer="away"} 1`,
		`postern_peer_rtt_seconds{peer="edge"} 0.`,
		`postern_check_success{direction="outbound",peer="edge",target="apiServer"} 1`,
		`postern_stun_requests_total{result="success"} `, `postern_stun_requests_total{result="timeout"} `,
		`postern_auth_decisions_total{result="ok"} `, `postern_auth_decisions_total{result="alreadyUsed"} 0`,
		`postern_ticket_alarms_total 0`, `postern_reloads_total{result="success"} 1`, `postern_reloads_total{result="error"} 0`,
		`postern_netstack_dropped_packets_total{reason=`, `postern_underlay_dropped_datagrams_total{reason=`,
		`postern_forward_connections_total{direction="inbound"} `, `postern_forward_refused_connections_total{direction="inbound",reason="upstream_down"} 0`,
		`postern_forward_open_connections{direction="outbound"} 0`,
	}
	w.await("the metrics have all", func() string {
		text = exposition(w, w.Cloud)
		missing := slices.DeleteFunc(slices.Clone(wanted), func(m string) bool { return strings.Contains(text, m) })
		return strings.Join(missing, "\n")
	})
	for _, secretive := range []string{siteKey(w.Edge).String(), "198.51.100.7", "fd"} {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "postern_") && strings.Contains(line, `"`+secretive) {
				t.Errorf("a label holds a key or an address: %s", line)
			}
		}
	}
	before := w.metric(w.Cloud, "postern_peer_transmit_bytes_total", `peer="edge"`)
	w.NAT.Link().SetDown(true)
	if after := w.metric(w.Cloud, "postern_peer_transmit_bytes_total", `peer="edge"`); after < before {
		t.Errorf("a counter went from %v to %v in an outage", before, after)
	}
}
