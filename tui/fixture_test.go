package tui

import (
	"time"

	"github.com/postern-dev/postern/control/api"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { t := now.Add(-d); return &t }

// busy has a peer in every state, and malicious texts.
func busy() api.Status {
	ok := api.Verdict{Verdict: api.OK, RTTSeconds: 0.0121}
	unknown := api.Verdict{Verdict: api.Unknown}
	off := api.Verdict{Verdict: api.Off}
	return api.Status{
		APIVersion: api.Version, Kind: "Status",
		Gateway: api.GatewayStatus{
			Name: "edge", PublicKey: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", Address: "fdfc:b48b:b521:208f:109d:b004:c59a:57a9",
			Version: "v0.1.0", ListenPort: 51820, StartedAt: now.Add(-7*time.Hour - 12*time.Minute),
			NAT:        api.NAT{Mapping: "endpoint-independent", Filtering: "unknown", PublicAddresses: []string{"203.0.113.8:51820"}},
			Candidates: []api.Candidate{{Address: "203.0.113.8:51820", Source: "stun"}, {Address: "192.168.1.20:51820", Source: "host"}},
		},
		Peers: []api.PeerStatus{
			{
				Name: "site-with-a-name-of-forty-characters-xyz", State: api.StateFailed, Reason: "nothing heard from 198.51.100.7:51820 for 2m0s",
				Path: api.Path{Kind: api.PathNone, Reason: "no answer"}, NextTry: ptr(now.Add(20 * time.Second)),
				Reachability: api.Reachability{
					Outbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: api.Verdict{
						Verdict: api.Error, Code: "PST0101", Stage: "handshake", Cause: "198.51.100.7:51820 does not answer handshakes (sent 4 in 20 s)",
						Fix: "open UDP port 51820 towards 198.51.100.7 on the firewall there",
					}},
					Inbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: unknown},
				},
			},
			{
				Name: "cloud", PublicKey: "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", Address: "fd1e:d2b1:b1f0:8c5d:a39b:2a5c:a6f9:fc9f", Mode: api.ModeInBand,
				State: api.StateConnected, Version: "v0.1.0",
				Allow: []string{"auth", "apiServer"}, Offers: []string{"auth", "apiServer", "registry"},
				Local: []api.Local{{Service: "apiServer", Address: "127.0.0.1:7443"}, {Service: "registry", Address: "127.0.0.1:5000", Error: "address already in use"}},
				Path: api.Path{Kind: api.PathDirect, Remote: "198.51.100.7:51820", Source: "advertised", RTTSeconds: 0.0121, Since: ago(3 * time.Hour), MTU: 1420,
					Traffic: &api.Traffic{Connections: 2, LimitedBy: api.LimitBandwidth, BytesPerSecond: 2.25e6, RTTSeconds: 0.0412, BaseRTTSeconds: 0.0119, LossRatio: 0.0031, QueueLossRatio: 0.0004, LossSample: 48213, InFlightBytes: 93e3, WindowBytes: 1e5},
					History: []api.PathEvent{{At: now.Add(-3 * time.Hour), Event: "direct", Reason: "first answer"}}},
				Candidates:    []api.Candidate{{Address: "198.51.100.7:51820", Source: "advertised", State: "selected", RTTSeconds: 0.0121}},
				Identity:      &api.Identity{User: "postern:peer:cloud:edge", NotAfter: now.Add(11 * time.Hour)},
				User:          "postern:peer:paris-f364e60ec9e5a82de608",
				Flows:         []api.Flow{{Direction: "outbound", Service: "apiServer", Remote: "127.0.0.1:40112", RxBytes: 5120, TxBytes: 900, WaitingBytes: 70_000, InFlightBytes: 93_000, StartedAt: now.Add(-time.Minute)}},
				LastHandshake: ago(42 * time.Second), RxBytes: 1_234_567_890, TxBytes: 98_765, RxBytesPerSecond: 1_240_000, TxBytesPerSecond: 870,
				Reachability: api.Reachability{
					Outbound: api.Targets{Auth: ok, APIServer: api.Verdict{
						Verdict: api.Warning, Code: "PST0503", Stage: "tls", Cause: "the certificate names kubernetes, not kubernetes.default.svc", Fix: "set services.apiServer.serverName: kubernetes there",
					}, Gateway: ok},
					Inbound: api.Targets{Auth: ok, APIServer: off, Gateway: unknown},
				},
			},
			{
				Name: "new\x1b[31m\u202eevil\n", State: api.StatePending, ApprovalFingerprint: "fcb4-8bb5-2120-8f10",
				Path: api.Path{Kind: api.PathRelay, RTTSeconds: 1.5},
				Reachability: api.Reachability{
					Outbound: api.Targets{Auth: off, APIServer: off, Gateway: ok}, Inbound: api.Targets{Auth: off, APIServer: off, Gateway: ok},
				},
			},
			{Name: "hub", State: api.StateConnecting, Path: api.Path{Kind: api.PathNone}},
		},
	}
}

func ptr[T any](v T) *T { return &v }
