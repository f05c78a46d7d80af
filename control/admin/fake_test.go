package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
)

// fake records its calls and returns preset answers.
type fake struct {
	mu    sync.Mutex
	calls []string
	err   error
	// joining is called by Join, which then waits for its context.
	joining func()
}

func (f *fake) called(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) == 0 {
		return ""
	}
	return f.calls[len(f.calls)-1]
}

func (f *fake) Status(context.Context) (api.Status, error) {
	return api.Status{Kind: "Status", Gateway: api.GatewayStatus{Name: "edge"}}, f.called("status")
}
func (f *fake) Config(context.Context) ([]config.Value, error) {
	return []config.Value{{Path: "spec.mtu", Value: "0", Origin: "default"}}, f.called("config")
}
func (f *fake) Invite(_ context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return api.InviteResponse{Ticket: "postern1ticket"}, f.called("invite %+v", r)
}
func (f *fake) Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	if f.joining != nil {
		f.joining()
		<-ctx.Done()
		return api.JoinResponse{}, errors.Join(f.called("join ended: %v", ctx.Err()), ctx.Err())
	}
	return api.JoinResponse{Outcome: api.JoinConnected, Peer: "cloud"}, f.called("join %+v", r)
}
func (f *fake) Accept(_ context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	return api.AcceptResponse{Peer: "edge", Connected: true}, f.called("accept %+v", r)
}
func (f *fake) PeerAdd(_ context.Context, r api.PeerAddRequest) error {
	return f.called("add %s %s", r.Peer.Name, r.PresharedKey)
}
func (f *fake) PeerAllow(_ context.Context, name string, r api.PeerAllowRequest) error {
	return f.called("allow %s %v", name, r.Allow)
}
func (f *fake) PeerLocal(_ context.Context, name string, r api.PeerLocalRequest) error {
	return f.called("local %s %v", name, r.Local)
}
func (f *fake) PeerTry(_ context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error) {
	return api.PeerTryResponse{UndoneAt: time.Unix(60, 0).UTC()}, f.called("try %s %v %v", name, time.Duration(r.Within), r.Allow.Allow)
}
func (f *fake) ConfigTry(_ context.Context, r api.ConfigTryRequest) (api.ConfigTryResponse, error) {
	return api.ConfigTryResponse{UndoneAt: time.Unix(60, 0).UTC()}, f.called("try configuration %v", time.Duration(r.Within))
}
func (f *fake) ConfigConfirm(context.Context) error              { return f.called("confirm configuration") }
func (f *fake) PeerConfirm(_ context.Context, name string) error { return f.called("confirm %s", name) }
func (f *fake) PeerApprove(_ context.Context, name string, r api.PeerApproveRequest) error {
	return f.called("approve %s %+v", name, r)
}
func (f *fake) PeerToken(_ context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error) {
	return api.PeerTokenResponse{Token: "t"}, f.called("token %s %+v", name, r)
}
func (f *fake) ClusterServices(_ context.Context, peer string) (api.ClusterServices, error) {
	return api.ClusterServices{Kind: "ClusterServices", Enabled: true}, f.called("services %s", peer)
}
func (f *fake) Discovered(context.Context) (api.DiscoveredList, error) {
	return api.DiscoveredList{Kind: "DiscoveredList", AnnouncedAs: "edge (2)"}, f.called("discovered")
}
func (f *fake) DiscoveredApprove(_ context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error) {
	return api.DiscoveredApproveResponse{Peer: r.As}, f.called("approve found %s %+v", name, r)
}
func (f *fake) PeerRemove(_ context.Context, name string, force bool) error {
	return f.called("remove %s %v", name, force)
}
func (f *fake) NetCheck(context.Context) (api.NetCheck, error) {
	return api.NetCheck{Mapping: "none"}, f.called("netcheck")
}
func (f *fake) Ping(_ context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	return api.PingReply{Seq: r.Seq, RTTSeconds: 0.25}, f.called("ping %s %+v", name, r)
}
func (f *fake) Kubeconfig(_ context.Context, name string) (api.Kubeconfig, error) {
	return api.Kubeconfig{Peer: name, Server: "https://127.0.0.1:7443"}, f.called("kubeconfig %s", name)
}
func (f *fake) Credential(_ context.Context, name string) (api.Credential, error) {
	return api.Credential{ClientKey: "secret"}, f.called("credential %s", name)
}
func (f *fake) Check(_ context.Context, r api.CheckRequest) (api.CheckReport, error) {
	return api.CheckReport{Kind: "CheckReport", Gateway: "edge"}, f.called("check %+v", r)
}
func (f *fake) Checks(context.Context) (api.CheckReport, error) {
	return api.CheckReport{Kind: "CheckReport", Gateway: "edge"}, f.called("checks")
}
func (f *fake) History(_ context.Context, r api.HistoryRequest) (api.History, error) {
	return api.History{Kind: "History", Gateway: "edge"}, f.called("history %+v", r)
}
func (f *fake) Log(_ context.Context, after uint64) (api.Log, error) {
	return api.Log{Kind: "Log", Records: []api.LogRecord{{Seq: after + 1}}}, f.called("log %d", after)
}
func (f *fake) KeyRotate(_ context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	return api.KeyRotateResponse{Rotated: true, Told: []string{"cloud"}}, f.called("rotate %+v", r)
}

func (f *fake) Reload(context.Context) error { return f.called("reload") }
