package metrics

import "github.com/prometheus/client_golang/prometheus"

// descriptions are the metrics' names, help texts and labels. README.md lists them, too; a test
// compares the two.
type descriptions struct {
	build                       *prometheus.Desc
	received, transmitted       *prometheus.Desc
	connected, state, identity  *prometheus.Desc
	handshake, path, rtt        *prometheus.Desc
	roundTrips                  *prometheus.Desc
	pathRate, pathPolicer       *prometheus.Desc
	pathBaseRTT, pathLoss       *prometheus.Desc
	pathInFlight, pathLimit     *prometheus.Desc
	pathMTU                     *prometheus.Desc
	check, verdict              *prometheus.Desc
	stun, auth, alarms          *prometheus.Desc
	unrecorded                  *prometheus.Desc
	netstack, underlay, reloads *prometheus.Desc
	connections, refused, open  *prometheus.Desc
	udpFlows, udpRefused        *prometheus.Desc
	udpOpen, udpDropped         *prometheus.Desc
	serviceConnections          *prometheus.Desc
	serviceOpen, serviceReady   *prometheus.Desc
	serviceReceived             *prometheus.Desc
	serviceTransmitted          *prometheus.Desc
	serviceFailures             *prometheus.Desc
	dnsQueries                  *prometheus.Desc
}

func describe() descriptions {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return descriptions{
		build: d("postern_build_info",
			"Always 1; the labels say what is running.", "version", "revision", "goversion"),
		received: d("postern_peer_receive_bytes_total",
			"Bytes of WireGuard messages received from the peer.", "peer"),
		transmitted: d("postern_peer_transmit_bytes_total",
			"Bytes of WireGuard messages sent to the peer.", "peer"),
		connected: d("postern_peer_connected",
			"1 while the peer is connected: it gave an authenticated answer recently; else 0.", "peer"),
		state: d("postern_peer_state_info",
			"Always 1; state is connected, unconfirmed (connected, but the last packets sent are unanswered), connecting, pending or failed.", "peer", "state"),
		identity: d("postern_peer_identity_expiry_timestamp_seconds",
			"When the identity for the peer's API server expires, since the Unix epoch; absent without one.", "peer"),
		handshake: d("postern_peer_last_handshake_timestamp_seconds",
			"Time of the last WireGuard handshake since the Unix epoch; 0 before the first.", "peer"),
		path: d("postern_peer_path_info",
			"Always 1; kind says how the peer is reached: direct, relay or none.", "peer", "kind"),
		rtt: d("postern_peer_rtt_seconds",
			"Round-trip time of the path in use; NaN while there is none.", "peer"),
		roundTrips: d("postern_peer_probe_rtt_seconds",
			"Round trips of probes over the paths that were in use.", "peer"),
		pathRate: d("postern_peer_path_delivery_bytes_per_second",
			"The highest recent payload rate of connections to the peer; NaN while unknown.", "peer"),
		pathPolicer: d("postern_peer_path_policer_bytes_per_second",
			"The rate that a rate limiter on the way to the peer lets through; NaN if there seems to be none.", "peer"),
		pathBaseRTT: d("postern_peer_path_base_rtt_seconds",
			"Round-trip time of the path without a queue, as connections measure it; NaN while unknown.", "peer"),
		pathLoss: d("postern_peer_path_loss_ratio",
			"Share of the packets to the peer that are lost, by cause: ambient at any rate, queue in full queues; NaN while fewer than 1000 were counted.", "peer", "cause"),
		pathMTU: d("postern_peer_path_mtu_bytes",
			"The largest packet inside the tunnel that crosses the path to the peer; NaN while unknown.", "peer"),
		pathInFlight: d("postern_peer_path_in_flight_bytes",
			"Bytes that connections have sent to the peer and that are not yet acknowledged.", "peer"),
		pathLimit: d("postern_peer_path_limit_info",
			"Always 1; limit says what bounds the rate to the peer: data, bandwidth, congestion, policer, or none while nothing is sent.", "peer", "limit"),
		check: d("postern_check_success",
			"1 when the last check of the target passed, 0 when it failed or is no longer known; "+
				"absent for what is not offered or was never checked.", "peer", "target", "direction"),
		verdict: d("postern_check_verdict_info",
			"Always 1; verdict is ok, warning, error, unknown or off, and code says why it is not ok.",
			"peer", "target", "direction", "verdict", "code"),
		stun: d("postern_stun_requests_total",
			"Requests to STUN servers by result.", "result"),
		auth: d("postern_auth_decisions_total",
			"Requests to the auth service by result.", "result"),
		alarms: d("postern_ticket_alarms_total",
			"Redemptions of a ticket with a second key."),
		unrecorded: d("postern_log_unrecorded_total",
			"Log records left out because there were too many of a kind or of a peer."),
		netstack: d("postern_netstack_dropped_packets_total",
			"Packets dropped inside the tunnel by reason.", "reason"),
		underlay: d("postern_underlay_dropped_datagrams_total",
			"Datagrams dropped on the UDP socket by reason.", "reason"),
		reloads: d("postern_reloads_total",
			"Reloads of the configuration by result.", "result"),
		connections: d("postern_forward_connections_total",
			"Connections carried through the tunnel by direction.", "direction"),
		refused: d("postern_forward_refused_connections_total",
			"Connections not carried by direction and reason.", "direction", "reason"),
		open: d("postern_forward_open_connections",
			"Connections open or being opened by direction.", "direction"),
		udpFlows: d("postern_forward_udp_flows_total",
			"UDP flows carried through the tunnel by direction.", "direction"),
		udpRefused: d("postern_forward_refused_udp_flows_total",
			"UDP flows not carried by direction and reason.", "direction", "reason"),
		udpOpen: d("postern_forward_open_udp_flows",
			"UDP flows open or being opened by direction.", "direction"),
		udpDropped: d("postern_forward_dropped_datagrams_total",
			"Datagrams of open flows not carried by reason.", "reason"),
		serviceConnections: d("postern_service_connections_total",
			"Connections and UDP flows to services of clusters, by direction, peer and service; an empty service is all others of the peer.", "direction", "peer", "service"),
		serviceOpen: d("postern_service_open_connections",
			"Open connections and UDP flows to services of clusters.", "direction", "peer", "service"),
		serviceReceived: d("postern_service_receive_bytes_total",
			"Bytes of them received from the peer.", "direction", "peer", "service"),
		serviceTransmitted: d("postern_service_transmit_bytes_total",
			"Bytes of them sent to the peer.", "direction", "peer", "service"),
		serviceFailures: d("postern_service_failures_total",
			"Connections and UDP flows to services of clusters that were not carried, by reason.", "direction", "peer", "service", "reason"),
		serviceReady: d("postern_service_ready_backends",
			"Backends of a service of this cluster that are ready.", "service"),
		dnsQueries: d("postern_dns_queries_total",
			"Queries for names of services of clusters, by the response code that they got, or why they got none.", "result"),
	}
}

func (d descriptions) all() []*prometheus.Desc {
	return []*prometheus.Desc{d.build, d.received, d.transmitted, d.connected, d.state, d.identity, d.handshake,
		d.path, d.rtt, d.roundTrips, d.pathRate, d.pathPolicer, d.pathBaseRTT, d.pathLoss, d.pathInFlight, d.pathLimit, d.pathMTU, d.check, d.verdict, d.stun, d.auth, d.alarms, d.unrecorded, d.netstack, d.underlay, d.reloads, d.connections, d.refused, d.open,
		d.udpFlows, d.udpRefused, d.udpOpen, d.udpDropped,
		d.serviceConnections, d.serviceOpen, d.serviceReceived, d.serviceTransmitted, d.serviceFailures, d.serviceReady, d.dnsQueries}
}
