// Package admin connects commands with a running gateway: HTTP/1.1 with JSON over a Unix socket.
// There is no admin port on TCP.
//
// # Who may do what
//
// The socket has mode 0660 in a directory of mode 0750, and the kernel identifies the client of
// each connection (SO_PEERCRED). The gateway's own user and root may do everything; members of the
// gateway's group may read the status and the configuration; everyone else is refused. On systems
// that cannot identify the client only the file's mode protects the socket, and any client counts
// as its owner.
//
// # Wire format
//
// Requests and answers are the documents of control/api. Bodies are JSON of at most 64 KB; unknown
// fields are ignored, so that an older gateway understands a newer command as far as possible.
// Every failure is an [api.Problem] with a status of 400 or above. The README lists the endpoints.
//
// [Backend] is the interface of a gateway. [Server] serves it on a socket, and [Client] implements
// it at the other end.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/suggest"
)

// Backend carries out commands. Its methods are called concurrently. The context ends when the
// command goes away or the server shuts down. An [*Error] is passed on as it is; any other error
// reaches the command as a message with status 500.
type Backend interface {
	// Status is answered from memory, at once.
	Status(ctx context.Context) (api.Status, error)
	// Config returns the effective configuration with the origin of each value.
	Config(ctx context.Context) ([]config.Value, error)
	// Invite waits for candidates, at most 3 s.
	Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error)
	// Join waits at most as long as the request says. If the inviter does not answer the result is
	// api.JoinReply, not an error.
	Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error)
	// Accept waits at most as long as the request says.
	Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error)

	PeerAdd(ctx context.Context, r api.PeerAddRequest) error
	PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error
	PeerLocal(ctx context.Context, name string, r api.PeerLocalRequest) error
	// PeerTry makes a change that is rolled back unless PeerConfirm comes in time.
	PeerTry(ctx context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error)
	PeerConfirm(ctx context.Context, name string) error
	PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error
	// PeerToken issues a token that identifies the peer to auth outside the tunnel.
	PeerToken(ctx context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error)
	// ClusterServices lists the exported and imported services of clusters, of one peer if peer is
	// not empty.
	ClusterServices(ctx context.Context, peer string) (api.ClusterServices, error)
	// Discovered lists the discovered gateways, at once.
	Discovered(ctx context.Context) (api.DiscoveredList, error)
	// DiscoveredApprove adds the discovered gateway of a name, such as "edge (2)", as a peer.
	DiscoveredApprove(ctx context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error)
	// PeerRemove refuses to remove a peer with open flows, unless forced.
	PeerRemove(ctx context.Context, name string, force bool) error

	// Ping sends one echo. A peer that does not answer is no error but a reply with Error set; an
	// unknown peer or layer is an error.
	Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error)
	Kubeconfig(ctx context.Context, name string) (api.Kubeconfig, error)
	Credential(ctx context.Context, name string) (api.Credential, error)
	// NetCheck queries the STUN and TURN servers again, and waits at most 5 s for them.
	NetCheck(ctx context.Context) (api.NetCheck, error)
	// Check runs the checks now, for at most 10 s, and returns their results. An unknown peer is an
	// error; a failing check is not.
	Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error)
	// Checks returns the latest results, at once.
	Checks(ctx context.Context) (api.CheckReport, error)
	// History returns the recent events of peers, at once. An unknown peer is an error.
	History(ctx context.Context, r api.HistoryRequest) (api.History, error)
	// Log returns the records of the recent log after the given one; 0 returns all that are kept.
	Log(ctx context.Context, after uint64) (api.Log, error)
	// KeyRotate announces another key to the peers and switches to it. It waits at most as long as
	// the request says for peers that do not answer.
	KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error)
	// Reload reads the configuration file again; an error leaves the old one in force.
	Reload(ctx context.Context) error
	// ConfigTry is Reload for a configuration that is rolled back unless ConfigConfirm comes in
	// time.
	ConfigTry(ctx context.Context, r api.ConfigTryRequest) (api.ConfigTryResponse, error)
	ConfigConfirm(ctx context.Context) error
}

// Error is a failed request: the message for the command, and its HTTP status.
type Error struct {
	api.Problem
	// Status is the HTTP status; 0 means 500.
	Status int
}

// Error returns the message with the hint in parentheses.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Hint)
}

// Usage returns an error in the request (exit code 2). The hint may be empty.
func Usage(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint, Usage: true}, Status: http.StatusBadRequest}
}

// NotFound returns an error for something that does not exist, which is a usage error.
func NotFound(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint, Usage: true}, Status: http.StatusNotFound}
}

// Conflict returns an error for a request that the current state does not allow.
func Conflict(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint}, Status: http.StatusConflict}
}

// Soon returns an error for a result that is still being made.
func Soon(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint, Soon: true}, Status: http.StatusConflict}
}

// Failed returns an error for a correct request that failed.
func Failed(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint}, Status: http.StatusInternalServerError}
}

// NoPeer returns an error for an unknown peer name.
func NoPeer(name string, peers []string) *Error {
	return &Error{Problem: suggest.Peer(name, peers), Status: http.StatusNotFound}
}

// ErrNoGateway reports that nobody answers on the socket.
var ErrNoGateway = errors.New("no gateway answers")

// ErrSilent reports a gateway that accepts requests and does not answer them.
var ErrSilent = errors.New("says nothing")

// ErrAlreadyRunning reports that a running process answers on the socket.
var ErrAlreadyRunning = errors.New("another gateway answers")
