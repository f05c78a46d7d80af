package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
)

// scripted is a gateway that answers what the files of a script say: status.json,
// invite.json and so on. With a file such as invite.problem it fails, with that
// api.Problem and its HTTP "status". What it was asked goes to the file calls.
type scripted struct {
	dir string
	mu  sync.Mutex
}

// answer records the call and reads what is to be answered.
func answer[A any](s *scripted, method string, request any) (A, error) {
	var a A
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return a, err
	}
	_, err = fmt.Fprintf(log, "%s %s\n", method, asked)
	if err = errors.Join(err, log.Close()); err != nil {
		return a, err
	}
	var problem struct {
		api.Problem
		Status int `json:"status"`
	}
	if found, err := s.read(method+".problem", &problem); found || err != nil {
		return a, errors.Join(err, &admin.Error{Problem: problem.Problem, Status: problem.Status})
	}
	_, err = s.read(method+".json", &a)
	return a, err
}

func (s *scripted) read(name string, into any) (found bool, err error) {
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(data, into)
}

type named struct {
	Name  string `json:"name"`
	Force bool   `json:"force,omitempty"`
	Body  any    `json:"body,omitempty"`
}

func (s *scripted) Status(context.Context) (api.Status, error) {
	return answer[api.Status](s, "status", nil)
}
func (s *scripted) Config(context.Context) ([]config.Value, error) {
	return answer[[]config.Value](s, "config", nil)
}
func (s *scripted) Invite(_ context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return answer[api.InviteResponse](s, "invite", r)
}
func (s *scripted) Join(_ context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	return answer[api.JoinResponse](s, "join", r)
}
func (s *scripted) Accept(_ context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	return answer[api.AcceptResponse](s, "accept", r)
}
func (s *scripted) PeerAdd(_ context.Context, r api.PeerAddRequest) error {
	_, err := answer[any](s, "add", r)
	return err
}
func (s *scripted) PeerAllow(_ context.Context, name string, r api.PeerAllowRequest) error {
	_, err := answer[any](s, "allow", named{Name: name, Body: r})
	return err
}
func (s *scripted) PeerLocal(_ context.Context, name string, r api.PeerLocalRequest) error {
	_, err := answer[any](s, "local", named{Name: name, Body: r})
	return err
}
func (s *scripted) PeerTry(_ context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error) {
	return answer[api.PeerTryResponse](s, "try", named{Name: name, Body: r})
}
func (s *scripted) PeerConfirm(_ context.Context, name string) error {
	_, err := answer[any](s, "confirm", named{Name: name})
	return err
}
func (s *scripted) PeerToken(_ context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error) {
	return answer[api.PeerTokenResponse](s, "token", named{Name: name, Body: r})
}
func (s *scripted) PeerApprove(_ context.Context, name string, r api.PeerApproveRequest) error {
	_, err := answer[any](s, "approve", named{Name: name, Body: r})
	return err
}
func (s *scripted) ClusterServices(_ context.Context, peer string) (api.ClusterServices, error) {
	return answer[api.ClusterServices](s, "services", named{Name: peer})
}
func (s *scripted) Discovered(context.Context) (api.DiscoveredList, error) {
	return answer[api.DiscoveredList](s, "discovered", nil)
}
func (s *scripted) DiscoveredApprove(_ context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error) {
	return answer[api.DiscoveredApproveResponse](s, "approve-found", named{Name: name, Body: r})
}
func (s *scripted) PeerRemove(_ context.Context, name string, force bool) error {
	_, err := answer[any](s, "remove", named{Name: name, Force: force})
	return err
}

// Ping answers from ping.json or, at sequence number N, from ping.N.json.
func (s *scripted) Ping(_ context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	a, err := answer[api.PingReply](s, "ping", named{Name: name, Body: r})
	if err == nil {
		_, err = s.read(fmt.Sprintf("ping.%d.json", r.Seq), &a)
	}
	a.Seq, a.Layer = r.Seq, r.Layer
	return a, err
}
func (s *scripted) Kubeconfig(_ context.Context, name string) (api.Kubeconfig, error) {
	return answer[api.Kubeconfig](s, "kubeconfig", named{Name: name})
}
func (s *scripted) Credential(_ context.Context, name string) (api.Credential, error) {
	return answer[api.Credential](s, "credential", named{Name: name})
}
func (s *scripted) NetCheck(context.Context) (api.NetCheck, error) {
	return answer[api.NetCheck](s, "netcheck", nil)
}
func (s *scripted) Check(_ context.Context, r api.CheckRequest) (api.CheckReport, error) {
	return answer[api.CheckReport](s, "check", r)
}
func (s *scripted) Checks(context.Context) (api.CheckReport, error) {
	return answer[api.CheckReport](s, "checks", nil)
}
func (s *scripted) History(_ context.Context, r api.HistoryRequest) (api.History, error) {
	return answer[api.History](s, "history", r)
}
func (s *scripted) Log(_ context.Context, after uint64) (api.Log, error) {
	return answer[api.Log](s, "log", after)
}
func (s *scripted) KeyRotate(_ context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	return answer[api.KeyRotateResponse](s, "rotate", r)
}

func (s *scripted) ConfigTry(_ context.Context, r api.ConfigTryRequest) (api.ConfigTryResponse, error) {
	return answer[api.ConfigTryResponse](s, "try-config", r)
}
func (s *scripted) ConfigConfirm(context.Context) error {
	_, err := answer[any](s, "confirm-config", nil)
	return err
}
func (s *scripted) Reload(context.Context) error {
	_, err := answer[any](s, "reload", nil)
	return err
}
