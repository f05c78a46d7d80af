package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
)

// maxAnswer bounds an answer in bytes: the status of a thousand peers with all their flows.
const maxAnswer = 64 << 20

// Client talks to a running gateway. It holds no connection to a socket between requests, and is
// safe for concurrent use. Failures of the gateway are an [*Error]. Without an answer the error is
// [ErrNoGateway], and also [ErrSilent] if a process accepts requests but does not answer.
type Client struct {
	socket string
	http   *http.Client
}

var _ Backend = (*Client)(nil)

// NewClient returns a client of the gateway at the socket. It does not dial yet.
func NewClient(socket string) *Client { return NewPatientClient(socket, 0) }

// NewPatientClient is NewClient for a gateway that may be starting: while nobody listens on the
// socket it dials again, for at most that long.
func NewPatientClient(socket string, patience time.Duration) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		for until := time.Now().Add(patience); ; {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			starting := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
			if !starting || !time.Now().Add(dialPause).Before(until) {
				return conn, err
			}
			select {
			case <-time.After(dialPause):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	return &Client{socket: socket, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true},
	}}
}

// dialPause is the interval between attempts.
const dialPause = 50 * time.Millisecond

// answerTime is how long a gateway may take to answer, beyond what the request lets it wait for
// others: twice the slowest time (README.md, "Endpoints").
const answerTime = 20 * time.Second

// answerLimit is how long the answer to a request may take.
func answerLimit(request any) time.Duration {
	switch r := request.(type) {
	case api.JoinRequest:
		return answerTime + cmp.Or(time.Duration(r.Wait), api.DefaultWait)
	case api.AcceptRequest:
		return answerTime + cmp.Or(time.Duration(r.Wait), api.DefaultWait)
	case api.KeyRotateRequest:
		return answerTime + cmp.Or(time.Duration(r.Wait), api.DefaultWait)
	}
	return answerTime
}

// idleConnTimeout is below the server's, so that no request is sent on a connection that is being
// closed.
const idleConnTimeout = idleTimeout / 2

// NewClientVia returns a client of the gateway that dial reaches, which messages call name. Its
// connections are kept for the next request, since making one may be costly, and answers are
// compressed, since the gateway may be far away: the status of a thousand peers is 2.5 MB. An error
// of dial is returned unchanged.
func NewClientVia(name string, dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{socket: name, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, &viaError{err}
			}
			return conn, nil
		},
		IdleConnTimeout: idleConnTimeout,
	}}}
}

// viaError marks an error of a caller's dial function.
type viaError struct{ error }

// Unwrap returns the error itself.
func (e *viaError) Unwrap() error { return e.error }

// Socket returns the path of the socket, or the name of the gateway.
func (c *Client) Socket() string { return c.socket }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// do sends one request. A nil body or answer means none.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	limit := answerLimit(body)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(math.MaxInt64, func() {
		cancel(fmt.Errorf("%w on %s: it takes requests and %w for %s", ErrNoGateway, c.socket, ErrSilent, limit))
	})
	defer silence.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { silence.Reset(limit) }, // reaching a cluster may take long
	})
	req, err := http.NewRequestWithContext(ctx, method, "http://postern"+path, payload)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.dialError(ctx, err)
	}
	defer resp.Body.Close()
	arriving := watched{resp.Body, func() { silence.Reset(limit) }}
	data, err := io.ReadAll(io.LimitReader(arriving, maxAnswer+1))
	switch {
	case err != nil && errors.Is(context.Cause(ctx), ErrSilent):
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("read the gateway's answer: %w", err)
	case len(data) > maxAnswer:
		return fmt.Errorf("the gateway's answer is larger than %d bytes", maxAnswer)
	case resp.StatusCode >= http.StatusBadRequest:
		return problem(resp, data)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the gateway's answer to %s is not understood: %w", path, err)
	}
	return nil
}

// watched calls waiting before each read.
type watched struct {
	io.Reader
	waiting func()
}

// Read reads from the reader.
func (w watched) Read(p []byte) (int, error) {
	w.waiting()
	return w.Reader.Read(p)
}

// dialError distinguishes an absent gateway from other failures.
func (c *Client) dialError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrSilent) {
		return cause
	}
	if via, ok := errors.AsType[*viaError](err); ok {
		return via.error
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // the URL's host is made up and would only confuse
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			return fmt.Errorf("ask the gateway on %s: it closed the connection (it has stopped, or this user has more than %d open): %w", c.socket, maxConns, err)
		}
		return fmt.Errorf("ask the gateway on %s: %w", c.socket, err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w on %s: there is no such socket", ErrNoGateway, c.socket)
	case len(c.socket) > config.MaxSocketPath:
		return fmt.Errorf("%w on %s: the path is %d bytes long, and a socket's holds %d", ErrNoGateway, c.socket, len(c.socket), config.MaxSocketPath)
	case errors.Is(err, syscall.ECONNREFUSED) && !isSocket(c.socket):
		return fmt.Errorf("%w on %s: it is not a socket", ErrNoGateway, c.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s: it has stopped without removing its socket", ErrNoGateway, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w on %s to this user: %w", ErrNoGateway, c.socket, fs.ErrPermission)
	}
	return fmt.Errorf("%w on %s: %w", ErrNoGateway, c.socket, op.Err)
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

func problem(resp *http.Response, data []byte) error {
	e := &Error{Status: resp.StatusCode}
	if err := json.Unmarshal(data, &e.Problem); err != nil || e.Message == "" {
		e.Problem = api.Problem{Message: "the gateway answered " + resp.Status + " without saying why"}
	}
	return e
}

func peerPath(name, action string) string {
	p := "/v1/peers/" + url.PathEscape(name)
	if action != "" {
		p += "/" + action
	}
	return p
}

// ask is do with an answer.
func ask[A any](ctx context.Context, c *Client, method, path string, body any) (A, error) {
	var answer A
	err := c.do(ctx, method, path, body, &answer)
	return answer, err
}

// Status asks for the gateway's status.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return ask[api.Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Config asks for the effective configuration.
func (c *Client) Config(ctx context.Context) ([]config.Value, error) {
	return ask[[]config.Value](ctx, c, http.MethodGet, "/v1/config", nil)
}

// Invite asks for a ticket.
func (c *Client) Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return ask[api.InviteResponse](ctx, c, http.MethodPost, "/v1/invite", r)
}

// Join redeems a ticket.
func (c *Client) Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	return ask[api.JoinResponse](ctx, c, http.MethodPost, "/v1/join", r)
}

// Accept makes the gateway dial the sender of a reply.
func (c *Client) Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	return ask[api.AcceptResponse](ctx, c, http.MethodPost, "/v1/accept", r)
}

// KeyRotate gives the gateway another key, after which it restarts.
func (c *Client) KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	return ask[api.KeyRotateResponse](ctx, c, http.MethodPost, "/v1/key/rotate", r)
}

// PeerAdd adds or replaces a peer.
func (c *Client) PeerAdd(ctx context.Context, r api.PeerAddRequest) error {
	return c.do(ctx, http.MethodPost, "/v1/peers", r, nil)
}

// PeerAllow replaces what a peer may reach.
func (c *Client) PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error {
	return c.do(ctx, http.MethodPut, peerPath(name, "allow"), r, nil)
}

// PeerLocal adds, replaces or removes listeners.
func (c *Client) PeerLocal(ctx context.Context, name string, r api.PeerLocalRequest) error {
	return c.do(ctx, http.MethodPatch, peerPath(name, "local"), r, nil)
}

// PeerTry makes a change that is undone unless it is confirmed.
func (c *Client) PeerTry(ctx context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error) {
	return ask[api.PeerTryResponse](ctx, c, http.MethodPost, peerPath(name, "try"), r)
}

// PeerConfirm keeps the change that was tried.
func (c *Client) PeerConfirm(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, peerPath(name, "confirm"), nil, nil)
}

// PeerApprove admits the pending peer whose key has the fingerprint.
func (c *Client) PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error {
	return c.do(ctx, http.MethodPost, peerPath(name, "approve"), r, nil)
}

// ClusterServices asks for the services of clusters, or only of the named peer.
func (c *Client) ClusterServices(ctx context.Context, peer string) (api.ClusterServices, error) {
	path := "/v1/services"
	if peer != "" {
		path += "?peer=" + url.QueryEscape(peer)
	}
	return ask[api.ClusterServices](ctx, c, http.MethodGet, path, nil)
}

// Discovered asks for the discovered gateways.
func (c *Client) Discovered(ctx context.Context) (api.DiscoveredList, error) {
	return ask[api.DiscoveredList](ctx, c, http.MethodGet, "/v1/discovered", nil)
}

// DiscoveredApprove makes a discovered gateway a peer.
func (c *Client) DiscoveredApprove(ctx context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error) {
	return ask[api.DiscoveredApproveResponse](ctx, c, http.MethodPost, "/v1/discovered/"+url.PathEscape(name)+"/approve", r)
}

// PeerToken asks for a token for a peer.
func (c *Client) PeerToken(ctx context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error) {
	return ask[api.PeerTokenResponse](ctx, c, http.MethodPost, peerPath(name, "token"), r)
}

// PeerRemove removes a peer.
func (c *Client) PeerRemove(ctx context.Context, name string, force bool) error {
	path := peerPath(name, "")
	if force {
		path += "?force=true"
	}
	return c.do(ctx, http.MethodDelete, path, nil, nil)
}

// Ping sends one echo.
func (c *Client) Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	return ask[api.PingReply](ctx, c, http.MethodPost, peerPath(name, "ping"), r)
}

// Kubeconfig asks for what a kubeconfig needs.
func (c *Client) Kubeconfig(ctx context.Context, name string) (api.Kubeconfig, error) {
	return ask[api.Kubeconfig](ctx, c, http.MethodGet, peerPath(name, "kubeconfig"), nil)
}

// Credential asks for the identity that the peer issued.
func (c *Client) Credential(ctx context.Context, name string) (api.Credential, error) {
	return ask[api.Credential](ctx, c, http.MethodGet, peerPath(name, "credential"), nil)
}

// NetCheck asks for the properties of the gateway's network.
func (c *Client) NetCheck(ctx context.Context) (api.NetCheck, error) {
	return ask[api.NetCheck](ctx, c, http.MethodPost, "/v1/netcheck", nil)
}

// Check runs the checks now.
func (c *Client) Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error) {
	return ask[api.CheckReport](ctx, c, http.MethodPost, "/v1/check", r)
}

// Checks asks for the latest results of the checks.
func (c *Client) Checks(ctx context.Context) (api.CheckReport, error) {
	return ask[api.CheckReport](ctx, c, http.MethodGet, "/v1/checks", nil)
}

// History asks for the recent history of peers.
func (c *Client) History(ctx context.Context, r api.HistoryRequest) (api.History, error) {
	q := url.Values{"peer": r.Peers}
	for name, d := range map[string]time.Duration{"since": r.Since, "step": r.Step} {
		if d > 0 {
			q.Set(name, d.String())
		}
	}
	return ask[api.History](ctx, c, http.MethodGet, "/v1/history?"+q.Encode(), nil)
}

// Log asks for the kept log records after the one with a number; 0 means all.
func (c *Client) Log(ctx context.Context, after uint64) (api.Log, error) {
	return ask[api.Log](ctx, c, http.MethodGet, fmt.Sprintf("/v1/log?after=%d", after), nil)
}

// Reload makes the gateway read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/reload", nil, nil)
}

// ConfigTry is Reload for a configuration that is undone unless it is confirmed.
func (c *Client) ConfigTry(ctx context.Context, r api.ConfigTryRequest) (api.ConfigTryResponse, error) {
	return ask[api.ConfigTryResponse](ctx, c, http.MethodPost, "/v1/config/try", r)
}

// ConfigConfirm keeps the configuration that was tried.
func (c *Client) ConfigConfirm(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/config/confirm", nil, nil)
}
