// Package admin is how commands talk to a running gateway: HTTP/1.1 with JSON over a
// Unix socket. There is no admin port on TCP.
//
// # Who may do what
//
// The socket has mode 0660 in a directory of mode 0750, and the kernel tells who is at
// the other end of each connection (SO_PEERCRED). The gateway's own user and root may
// do everything; members of the gateway's group may read the status and the
// configuration; everyone else is refused. Systems that cannot tell the peer have the
// file's mode alone, and then whoever may open the socket counts as its owner.
//
// # Wire format
//
// Requests and answers are the documents of control/api. Bodies are JSON of at most
// 64 KB; unknown fields are ignored, so that an older gateway understands a newer
// command as far as it goes. Every failure is an [api.Problem] with a status of 400
// and above. The endpoints are listed in the README.
//
// [Backend] is what a gateway must be able to do. [Server] offers it on a socket, and
// [Client] is the same interface at the other end.
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

// Backend does what commands ask for. Its methods are called concurrently. The context
// ends when the command goes away or the server shuts down. An [*Error] is passed on as
// it is; any other error reaches the command as a message with status 500.
type Backend interface {
	// Status is answered from memory, at once.
	Status(ctx context.Context) (api.Status, error)
	// Config is the effective configuration with the origin of each value.
	Config(ctx context.Context) ([]config.Value, error)
	// Invite waits for candidates, at most 3 s.
	Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error)
	// Join waits at most as long as the request says. An inviter that does not answer
	// is no error but api.JoinReply.
	Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error)
	// Accept waits at most as long as the request says.
	Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error)

	PeerAdd(ctx context.Context, r api.PeerAddRequest) error
	PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error
	PeerLocal(ctx context.Context, name string, r api.PeerLocalRequest) error
	// PeerTry makes a change that is undone unless PeerConfirm comes in time.
	PeerTry(ctx context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error)
	PeerConfirm(ctx context.Context, name string) error
	PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error
	// PeerToken makes a token by which the peer is known to auth outside the tunnel.
	PeerToken(ctx context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error)
	// ClusterServices lists the services of clusters that are exported and imported; of one peer, if it
	// is named.
	ClusterServices(ctx context.Context, peer string) (api.ClusterServices, error)
	// Discovered lists the gateways that were found, at once.
	Discovered(ctx context.Context) (api.DiscoveredList, error)
	// DiscoveredApprove makes a peer of one that was found by a name, such as "edge (2)".
	DiscoveredApprove(ctx context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error)
	// PeerRemove refuses a peer that has open flows, unless forced.
	PeerRemove(ctx context.Context, name string, force bool) error

	// Ping sends one echo. A peer that does not answer is no error but a reply with
	// its Error set; an unknown peer or layer is an error.
	Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error)
	Kubeconfig(ctx context.Context, name string) (api.Kubeconfig, error)
	Credential(ctx context.Context, name string) (api.Credential, error)
	// NetCheck asks the STUN and TURN servers again, and waits at most 5 s for them.
	NetCheck(ctx context.Context) (api.NetCheck, error)
	// Check runs the checks now, at most 10 s, and returns what they found. An unknown peer
	// is an error; a check that fails is none.
	Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error)
	// Checks returns what the checks found last, at once.
	Checks(ctx context.Context) (api.CheckReport, error)
	// History returns what became of peers recently, at once. An unknown peer is an error.
	History(ctx context.Context, r api.HistoryRequest) (api.History, error)
	// Log returns the records of the recent log that came after one; 0 gives all that are
	// kept.
	Log(ctx context.Context, after uint64) (api.Log, error)
	// KeyRotate tells the peers of another key and takes it. It waits at most as long as the
	// request says for those that do not answer.
	KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error)
	// Reload reads the configuration file again; an error leaves the old one in force.
	Reload(ctx context.Context) error
	// ConfigTry is Reload for a configuration that is undone unless ConfigConfirm comes in time.
	ConfigTry(ctx context.Context, r api.ConfigTryRequest) (api.ConfigTryResponse, error)
	ConfigConfirm(ctx context.Context) error
}

// Error is a failed request: what the command shows, and the HTTP status it travels
// with.
type Error struct {
	api.Problem
	// Status is the HTTP status; 0 counts as 500.
	Status int
}

// Error is the message with the hint in parentheses.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Hint)
}

// Usage is an error in the request (exit code 2). The hint may be empty.
func Usage(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint, Usage: true}, Status: http.StatusBadRequest}
}

// NotFound says that no such thing exists. Asking for it is a mistake of usage.
func NotFound(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint, Usage: true}, Status: http.StatusNotFound}
}

// Conflict says that the state of things does not admit the request.
func Conflict(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint}, Status: http.StatusConflict}
}

// Soon says that what is asked for is on its way.
func Soon(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint, Soon: true}, Status: http.StatusConflict}
}

// Failed says that the request was right and the world was not.
func Failed(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint}, Status: http.StatusInternalServerError}
}

// NoPeer says that no peer has that name.
func NoPeer(name string, peers []string) *Error {
	return &Error{Problem: suggest.Peer(name, peers), Status: http.StatusNotFound}
}

// ErrNoGateway reports that nobody answers on the socket.
var ErrNoGateway = errors.New("no gateway answers")

// ErrSilent reports a gateway that takes requests and does not answer them.
var ErrSilent = errors.New("says nothing")

// ErrAlreadyRunning reports that a living process answers on the socket.
var ErrAlreadyRunning = errors.New("another gateway answers")
