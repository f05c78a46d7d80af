package screen

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
)

// noon is the time of every frame in the goldens.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { t := noon.Add(-d); return &t }

// fake is a scripted gateway. Its methods may be called at any time.
type fake struct {
	mu     sync.Mutex
	status api.Status
	report api.CheckReport
	log    api.Log
	past   api.History
	// services are those of clusters.
	services api.ClusterServices
	// askedServices are the peers whose services were requested.
	askedServices []string
	err           error
	// refusal is the error of changes.
	refusal error

	statuses  int // calls of Status
	histories []api.HistoryRequest
	checked   []string
	pinged    []string
	ticket    string
	warnings  []string // of tickets
	joined    api.JoinResponse
	rotated   api.KeyRotateResponse
	changes   []string // the changes, as calls
	// check, if set, runs before Check answers.
	check func(ctx context.Context)
}

func (f *fake) Status(context.Context) (api.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses++
	return f.status, f.err
}

func (f *fake) Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error) {
	if f.check != nil {
		f.check(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checked = append(f.checked, r.Peer)
	return f.report, f.err
}

func (f *fake) PeerApprove(_ context.Context, name string, r api.PeerApproveRequest) error {
	return f.change("approve", name, r.Fingerprint)
}

func (f *fake) PeerAllow(_ context.Context, name string, r api.PeerAllowRequest) error {
	return f.change("allow", name, r.Allow)
}

func (f *fake) PeerRemove(_ context.Context, name string, force bool) error {
	return f.change("remove", name, force)
}

func (f *fake) Invite(_ context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return api.InviteResponse{Ticket: cmp.Or(f.ticket, "postern1ticket"), ExpiresAt: noon.Add(time.Duration(r.TTL)), Warnings: f.warnings}, f.change("invite", r.Name, r.Allow, time.Duration(r.TTL))
}

func (f *fake) Join(_ context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	return f.joined, f.change("join", r.Ticket, r.Allow)
}

func (f *fake) Accept(_ context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	return api.AcceptResponse{Peer: "site", Connected: true}, f.change("accept", r.Reply)
}

func (f *fake) KeyRotate(context.Context, api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	return f.rotated, f.change("rotate")
}

func (f *fake) Ping(_ context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pinged = append(f.pinged, name+" "+r.Layer)
	return api.PingReply{RTTSeconds: 0.012, Path: api.PathDirect, Remote: "198.51.100.7:51820\x1b[2J"}, f.err
}

func (f *fake) change(call ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, strings.TrimSpace(fmt.Sprintln(call...)))
	return f.refusal
}

func (f *fake) ConfigConfirm(context.Context) error { return f.change("config confirm") }

func (f *fake) Checks(context.Context) (api.CheckReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.report, f.err
}

func (f *fake) History(_ context.Context, r api.HistoryRequest) (api.History, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.histories = append(f.histories, r)
	h := f.past
	h.From, h.Peers = h.To.Add(-r.Since), nil
	for _, p := range f.past.Peers {
		if slices.Contains(r.Peers, p.Peer) {
			p.Points = slices.DeleteFunc(slices.Clone(p.Points), func(x api.HistoryPoint) bool {
				return x.At.Add(time.Duration(x.Seconds) * time.Second).Before(h.From)
			})
			p.Events = slices.DeleteFunc(slices.Clone(p.Events), func(e api.HistoryEvent) bool { return e.At.Before(h.From) && !e.Stands(h.From) })
			h.Peers = append(h.Peers, p)
		}
	}
	return h, f.err
}

func (f *fake) ClusterServices(_ context.Context, peer string) (api.ClusterServices, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.askedServices = append(f.askedServices, peer)
	return f.services, f.err
}

func (f *fake) Log(_ context.Context, after uint64) (api.Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := api.Log{Alarms: f.log.Alarms}
	for _, r := range f.log.Records {
		if r.Seq > after {
			l.Records = append(l.Records, r)
		}
	}
	return l, f.err
}

// busy is a gateway with a peer in every state, a check with every outcome, and malicious texts.
func busy() *fake {
	return &fake{status: busyStatus(), report: busyReport(), past: busyPast(), services: busyServices(), log: api.Log{Records: []api.LogRecord{
		{Seq: 1, Time: noon.Add(-time.Minute), Level: "INFO", Message: "path changed", Attrs: []api.LogAttr{{Key: "peer", Value: "cloud"}, {Key: "to", Value: "198.51.100.7:51820"}}},
		{Seq: 2, Time: noon.Add(-20 * time.Second), Level: "WARN", Message: "peer does not answer", Attrs: []api.LogAttr{{Key: "peer", Value: "hub\x1b[31m"}}},
	}}}
}

// busyServices has a service in every state.
func busyServices() api.ClusterServices {
	exported := func(name, peer, state string, ready int) api.ClusterService {
		return api.ClusterService{Service: name, Direction: api.ServiceExported, Peer: peer, State: state, Type: "ClusterSetIP", Ports: []string{"443"}, ReadyBackends: &ready}
	}
	web, empty, told := exported("shop/web", "cloud", api.ServiceInUse, 3), exported("shop/queue", "cloud", api.ServiceInUse, 0), exported("shop/dns", "hub", api.ServiceWaiting, 2)
	web.Connections, web.Used = 12, &api.ServiceUse{Connections: 4711, RxBytes: 1e6, TxBytes: 9e9, Failures: map[string]uint64{"none_ready": 3}}
	empty.Used = &api.ServiceUse{Failures: map[string]uint64{"none_ready": 40, "upstream_down": 2}}
	told.Ports = []string{"53", "53/UDP"}
	return api.ClusterServices{Enabled: true, Services: []api.ClusterService{
		exported("bank/vault", "", api.ServiceUngranted, 1), told, empty, web,
		{Service: "shop/db", Direction: api.ServiceImported, Peer: "cloud", State: api.ServiceInUse, Type: "Headless", Ports: []string{"5432"}, Addresses: []string{"10.0.0.9:20001", "10.0.0.9:20002"},
			Connections: 7, Used: &api.ServiceUse{Connections: 99, RxBytes: 5e8, TxBytes: 1e6}},
		{Service: "team/web", Direction: api.ServiceImported, Peer: "hub", State: api.ServiceRefused, Code: "PST0904",
			Cause: "hub exports team/web\x1b[2J to this gateway, and there is no such namespace for it here", Fix: "kubectl create namespace team"},
	}}
}

// busyPast is their history: cloud was lost for two minutes and restarted, and is slow at times.
var busyPast = sync.OnceValue(func() api.History {
	const site, evil = "site-with-a-name-of-forty-characters-xyz", "new\x1b[31m\u202eevil\n"
	h := history.New(noon.Add(-7*time.Hour - 12*time.Minute))
	h.SetPeers([]string{"cloud", "hub", site, evil})
	ok, unknown, off := api.OK, api.Unknown, api.Off
	none := api.Outcomes{Auth: unknown, APIServer: unknown, Gateway: unknown}
	failed := api.Outcomes{Auth: unknown, APIServer: unknown, Gateway: api.Error}
	root := func(code string, v api.Outcome, check, event, reason string) []api.HistoryEvent {
		return []api.HistoryEvent{{Code: code, Check: check, Direction: api.DirectionOutbound, Verdict: v, Event: event, Reason: reason}}
	}
	silent := root("PST0101", api.Error, "gateway", "the peer has never answered", "198.51.100.7:51820 does not answer handshakes (sent 4 in 20 s)")
	cert := root("PST0503", api.Warning, "apiServer", "the certificate is for another name", "the certificate names kubernetes, not kubernetes.default.svc")
	const step = 5 * time.Second
	for at := noon.Add(-2 * time.Hour); !at.After(noon); at = at.Add(step) {
		m := int(noon.Sub(at) / time.Minute)
		is := history.Sample{State: api.StateConnected, Path: api.PathDirect, RTT: 12 * time.Millisecond, Loss: 0.003, Rx: 1.24e6, Tx: 870}
		out, in, roots := api.Outcomes{Auth: ok, APIServer: ok, Gateway: ok}, api.Outcomes{Auth: ok, APIServer: off, Gateway: unknown}, []api.HistoryEvent(nil)
		if m < 50 {
			out.APIServer, roots = api.Warning, cert
		}
		switch {
		case m == 24 || m == 25:
			is, out, in, roots = history.Sample{State: api.StateFailed, Path: api.PathNone, Loss: math.NaN()}, failed, none, append(silent, roots...)
		case m > 33 && m < 40:
			is.Path, is.RTT, is.Loss = api.PathRelay, 95*time.Millisecond, 0.041
		}
		h.Judge(at, "cloud", out, in, roots)
		h.Observe(at, "cloud", is)
		h.Observe(at, "hub", history.Sample{State: api.StateConnecting, Path: api.PathNone, Loss: math.NaN()})
		is = history.Sample{State: api.StateConnected, Path: api.PathRelay, RTT: 80 * time.Millisecond, Loss: math.NaN()}
		if roots = nil; m < 20 {
			is, roots = history.Sample{State: api.StateFailed, Path: api.PathNone, Loss: math.NaN()}, silent
		}
		h.Judge(at, site, failed, none, roots)
		h.Observe(at, site, is)
		if m < 10 {
			h.Observe(at, evil, history.Sample{State: api.StatePending, Path: api.PathRelay, RTT: 1500 * time.Millisecond, Loss: math.NaN()})
		}
	}
	note := func(ago time.Duration, peer string, kind api.EventKind, event, reason string) {
		h.Note(peer, api.HistoryEvent{At: noon.Add(-ago), Kind: kind, Event: event, Reason: reason})
	}
	note(3*time.Hour, "cloud", api.EventJoined, "joined", "")
	note(40*time.Minute, "cloud", api.EventPath, "relay 203.0.113.9:49160", "the direct path does not answer")
	note(34*time.Minute, "cloud", api.EventPath, "direct 198.51.100.7:51820", "the lowest round trip of 2 that answer")
	note(24*time.Minute, "cloud", api.EventRestart, "the peer was restarted", "its boot id changed: a new handshake is made")
	note(12*time.Minute, "cloud", api.EventKey, "the peer has another key", "its fingerprint is fcb4-8bb5-2120-8f10")
	note(10*time.Minute, evil, api.EventJoined, "joined\x1b[2J", "it waits for approval\x1b]52;c;ZXZpbA==\a")
	out := api.History{APIVersion: api.Version, Kind: "History", Gateway: "edge", Since: h.Since(), From: h.Since(), To: noon}
	for _, name := range []string{"cloud", "hub", evil, site} {
		p, _ := h.Read(name, time.Time{}, noon, 0)
		out.Peers = append(out.Peers, p)
	}
	return out
})

func busyStatus() api.Status {
	ok := api.Verdict{Verdict: api.OK, RTTSeconds: 0.0121}
	unknown := api.Verdict{Verdict: api.Unknown}
	off := api.Verdict{Verdict: api.Off}
	return api.Status{
		APIVersion: api.Version, Kind: "Status",
		Gateway: api.GatewayStatus{
			Name: "edge", PublicKey: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", Address: "fdfc:b48b:b521:208f:109d:b004:c59a:57a9",
			Version: "v0.1.0", ListenPort: 51820, StartedAt: noon.Add(-7*time.Hour - 12*time.Minute),
			NAT: api.NAT{Mapping: "endpoint-independent", Filtering: "unknown", PublicAddresses: []string{"203.0.113.8:51820"}},
		},
		Peers: []api.PeerStatus{
			{
				Name: "site-with-a-name-of-forty-characters-xyz", PublicKey: "site-key", State: api.StateFailed, Reason: "nothing heard from 198.51.100.7:51820 for 2m0s",
				Path:       api.Path{Kind: api.PathNone, Reason: "no answer"},
				Candidates: []api.Candidate{{Address: "198.51.100.7:51820", Source: "advertised", State: "failed", Reason: "no answer to 12 probes in 10 s"}},
				Reachability: api.Reachability{
					Outbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: api.Verdict{
						Verdict: api.Error, Code: "PST0101", Stage: "handshake", Cause: "198.51.100.7:51820 does not answer handshakes (sent 4 in 20 s)",
						Fix: "open UDP port 51820 towards 198.51.100.7 on the firewall there",
					}},
					Inbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: unknown},
				},
			},
			cloud(ok, off, unknown),
			{
				Name: "new\x1b[31m\u202eevil\n", PublicKey: "evil-key", State: api.StatePending, ApprovalFingerprint: "fcb4-8bb5-2120-8f10",
				Path: api.Path{Kind: api.PathRelay, RTTSeconds: 1.5, Reason: "\x1b]52;c;ZXZpbA==\a"},
				Reachability: api.Reachability{
					Outbound: api.Targets{Auth: off, APIServer: off, Gateway: ok}, Inbound: api.Targets{Auth: off, APIServer: off, Gateway: ok},
				},
			},
			{Name: "hub", PublicKey: "hub-key", State: api.StateConnecting, Path: api.Path{Kind: api.PathNone}},
		},
	}
}

func cloud(ok, off, unknown api.Verdict) api.PeerStatus {
	return api.PeerStatus{
		Name: "cloud", PublicKey: "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", Address: "fd1e:d2b1:b1f0:8c5d:a39b:2a5c:a6f9:fc9f", Mode: api.ModeInBand,
		State: api.StateConnected, Version: "v0.1.0",
		Allow: []string{"auth", "apiServer"}, Offers: []string{"auth", "apiServer", "registry"},
		Local: []api.Local{{Service: "apiServer", Address: "127.0.0.1:7443"}, {Service: "registry", Address: "127.0.0.1:5000", Error: "address already in use"}},
		Path: api.Path{Kind: api.PathDirect, Remote: "198.51.100.7:51820", Source: "advertised", RTTSeconds: 0.0121, Since: ago(3 * time.Hour), MTU: 1420,
			Traffic: &api.Traffic{Connections: 2, LimitedBy: api.LimitBandwidth, BytesPerSecond: 2.25e6, RTTSeconds: 0.0412, BaseRTTSeconds: 0.0119, LossRatio: 0.0031, QueueLossRatio: 0.0004, LossSample: 48213, InFlightBytes: 93e3, WindowBytes: 1e5},
			Reason:  "the only path that answers", History: []api.PathEvent{{At: noon.Add(-3 * time.Hour), Event: "direct", Reason: "first answer"}}},
		Candidates: []api.Candidate{
			{Address: "198.51.100.7:51820", Source: "advertised", State: "selected", RTTSeconds: 0.0121, Reason: "the only path that answers"},
			{Address: "192.168.7.2:51820", Source: "host", State: "probing", Reason: "3 probes sent, none answered yet"},
		},
		Identity: &api.Identity{NotAfter: noon.Add(11 * time.Hour)},
		Flows: []api.Flow{
			{Direction: "outbound", Service: "apiServer", Remote: "127.0.0.1:40112", RxBytes: 5120, TxBytes: 900, WaitingBytes: 70_000, InFlightBytes: 93_000, StartedAt: noon.Add(-time.Minute)},
			{Direction: "inbound", Service: "auth", Remote: "[fd1e::1]:40113", RxBytes: 512, TxBytes: 90_000, StartedAt: noon.Add(-time.Hour)},
		},
		LastHandshake: ago(42 * time.Second), RxBytes: 1_234_567_890, TxBytes: 98_765, RxBytesPerSecond: 1_240_000, TxBytesPerSecond: 870,
		Reachability: api.Reachability{
			Outbound: api.Targets{Auth: ok, APIServer: api.Verdict{
				Verdict: api.Warning, Code: "PST0503", Stage: "tls", Cause: "the certificate names kubernetes, not kubernetes.default.svc", Fix: "set services.apiServer.serverName: kubernetes there",
			}, Gateway: ok},
			Inbound: api.Targets{Auth: ok, APIServer: off, Gateway: unknown},
		},
	}
}

func busyReport() api.CheckReport {
	at := ago(12 * time.Second)
	stages := func(s ...api.CheckStage) []api.CheckStage { return s }
	const site = "site-with-a-name-of-forty-characters-xyz"
	return api.CheckReport{
		APIVersion: api.Version, Kind: "CheckReport", Gateway: "edge", At: noon,
		Summary: api.CheckSummary{OK: 4, Warning: 2, Error: 1, Unknown: 2, Off: 1},
		Checks: []api.Check{
			{Name: "exposure", Direction: api.DirectionOwn, Verdict: api.Verdict{Verdict: api.OK, CheckedAt: at}},
			{Name: "resources", Direction: api.DirectionOwn, Verdict: api.Verdict{
				Verdict: api.Warning, Code: "PST0810", Stage: "resources", CheckedAt: at,
				Cause: "the socket's receive buffer is 212992 bytes, and 1024 datagrams were dropped for want of room",
				Fix:   "sysctl -w net.core.rmem_max=7500000",
			}},
			{Name: "gateway", Peer: "cloud", Target: "gateway", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.OK, RTTSeconds: 0.0121, CheckedAt: at}, Stages: stages(
				api.CheckStage{Stage: "probe", Verdict: api.OK, Seconds: 0.0121}, api.CheckStage{Stage: "handshake", Verdict: api.OK, Seconds: 0.013})},
			{Name: "auth", Peer: "cloud", Target: "auth", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.OK, RTTSeconds: 0.0121, CheckedAt: at}},
			{Name: "apiServer", Peer: "cloud", Target: "apiServer", Direction: api.DirectionOutbound, Verdict: api.Verdict{
				Verdict: api.Warning, Code: "PST0503", Stage: "tls", CheckedAt: at, Cause: "the certificate names kubernetes, not kubernetes.default.svc",
				Fix: "set services.apiServer.serverName: kubernetes there",
			}, Stages: stages(
				api.CheckStage{Stage: "tcp", Verdict: api.OK, Seconds: 0.0123, Via: "in-band"},
				api.CheckStage{Stage: "tls", Verdict: api.Warning, Seconds: 0.0312, Via: "in-band", Detail: "x509: certificate is valid for kubernetes\x1b[2J, not kubernetes.default.svc"})},
			{Name: "inbound-auth", Peer: "cloud", Target: "auth", Direction: api.DirectionInbound, Verdict: api.Verdict{Verdict: api.OK, CheckedAt: ago(4 * time.Minute)}},
			{Name: "inbound-apiServer", Peer: "cloud", Target: "apiServer", Direction: api.DirectionInbound, Verdict: api.Verdict{Verdict: api.Off}},
			{Name: "gateway", Peer: site, Target: "gateway", Direction: api.DirectionOutbound, Verdict: api.Verdict{
				Verdict: api.Error, Code: "PST0101", Stage: "handshake", CheckedAt: at, Cause: "198.51.100.7:51820 does not answer handshakes (sent 4 in 20 s)",
				Fix: "open UDP port 51820 towards 198.51.100.7 on the firewall there",
			}, Stages: stages(
				api.CheckStage{Stage: "probe", Verdict: api.Error, Seconds: 5, Detail: "no answer to 12 probes"},
				api.CheckStage{Stage: "handshake", Verdict: api.Error, Seconds: 20})},
			{Name: "auth", Peer: site, Target: "auth", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.Unknown}, DependsOn: "gateway"},
			{Name: "apiServer", Peer: site, Target: "apiServer", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.Unknown}, DependsOn: "gateway"},
		},
	}
}
