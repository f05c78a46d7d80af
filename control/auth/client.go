package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

// requestTimeout bounds a request whose context has no deadline. It is longer than the server's own
// timeout, so that its answer gets through.
const requestTimeout = 30 * time.Second

// Client sends requests to one gateway. It keeps no connection open, and is safe for concurrent
// use. Use errors.Is with this package's sentinels to distinguish its errors.
type Client struct {
	// base is the URL prefix of paths, addr what is dialled, host:port.
	base, addr string
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	// direct is nil inside the tunnel.
	direct *directAccess
}

// directAccess is what access outside the tunnel needs.
type directAccess struct {
	tls   *tls.Config
	token Token
}

// DirectOptions say how to reach a gateway's auth outside the tunnel.
type DirectOptions struct {
	// URL is https, with a path or without.
	URL string
	// CA holds the PEM certificates of trusted authorities; empty means the system's.
	CA []byte
	// Token identifies us. It is sent only after the server's certificate is verified.
	Token Token
	// Dial connects to the URL's host; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewDirectClient returns a client for a gateway outside the tunnel.
func NewDirectClient(o DirectOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, errors.New("the URL of auth is not https://HOST or https://HOST:PORT")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
	if len(o.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("the authorities of auth hold no PEM certificate")
		}
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return &Client{
		base: "https://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"), addr: net.JoinHostPort(u.Hostname(), port),
		dial: o.Dial, direct: &directAccess{tls: config, token: o.Token},
	}, nil
}

// NewClient returns a client for the gateway with an overlay address. dial connects through the
// tunnel: netstack's DialContext.
func NewClient(overlay netip.Addr, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Client {
	at := netip.AddrPortFrom(overlay, api.PortAuth).String()
	return &Client{base: "http://" + at, addr: at, dial: dial}
}

// Hello asks who the gateway is and what it grants us. It returns an [ErrIncompatible] if the
// versions are incompatible.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var body json.RawMessage
	if err := c.do(ctx, http.MethodGet, HelloPath, nil, &body); err != nil {
		return Hello{}, err
	}
	h, err := ParseHello(body)
	if err != nil {
		return Hello{}, err
	}
	return h, nil
}

// Redemption is the result of redeeming a ticket.
type Redemption struct {
	// Name is the inviter's own name, As its name for us.
	Name, As     string
	Granted      []string
	PresharedKey peer.PresharedKey
	// Pending: the inviter's operator has yet to approve our key.
	Pending bool
	// APIServer may be nil.
	APIServer *APIServer
}

// Redeem redeems the ticket in whose one-time tunnel dial connects. The same request may be
// repeated until its answer arrives.
func (c *Client) Redeem(ctx context.Context, q ticket.Request) (Redemption, error) {
	body := redeemRequest{spoken: speaks, PublicKey: q.PublicKey.String(), Name: q.Name, Wants: q.Wants, Grants: q.Grants, Proof: q.Proof}
	for _, x := range q.Candidates {
		body.Candidates = append(body.Candidates, wireCandidate{Address: x.Addr.String(), Source: x.Source})
	}
	var out redeemResponse
	if err := c.do(ctx, http.MethodPost, pathRedeem, body, &out); err != nil {
		return Redemption{}, err
	}
	psk, err := peer.ParsePresharedKey(out.PresharedKey)
	if err != nil || psk.IsZero() {
		return Redemption{}, fmt.Errorf("%w: no preshared key in it", ErrAnswer)
	}
	for _, name := range []string{out.Name, out.Peer} {
		if err := api.CheckName(name); err != nil {
			return Redemption{}, fmt.Errorf("%w: %w", ErrAnswer, foreign.Err(err))
		}
	}
	granted := services(out.Granted)
	if err := out.APIServer.clean(); err != nil {
		return Redemption{}, err
	}
	return Redemption{
		Name: out.Name, As: out.Peer, Granted: granted, PresharedKey: psk,
		Pending: out.Pending, APIServer: out.APIServer,
	}, nil
}

// Grant is a gateway's answer to a request for an identity: a certificate (PEM) or a token. It is
// bounded but otherwise unchecked: [Keeper] checks it.
type Grant struct {
	CertificatePEM []byte
	Token          Token
	NotAfter       time.Time
	// User comes alone: the request has to be made again for this user.
	User string
}

// Identity requests a certificate for a signing request (PEM), for the gateway's API server. A
// gateway that issues tokens answers an [ErrIncompatible].
func (c *Client) Identity(ctx context.Context, csrPEM []byte) (certPEM []byte, err error) {
	g, err := c.identity(ctx, identityRequest{spoken: speaks, CSR: string(csrPEM)})
	return g.CertificatePEM, err
}

// AnyIdentity is like Identity, but accepts a token as well.
func (c *Client) AnyIdentity(ctx context.Context, csrPEM []byte) (Grant, error) {
	return c.identity(ctx, identityRequest{
		spoken: speaks, CSR: string(csrPEM), Accepts: []string{acceptCertificate, acceptToken, acceptUser, acceptGatewayUser},
	})
}

func (c *Client) identity(ctx context.Context, q identityRequest) (Grant, error) {
	var out identityResponse
	if err := c.do(ctx, http.MethodPost, pathIdentity, q, &out); err != nil {
		return Grant{}, err
	}
	return Grant{CertificatePEM: []byte(out.Certificate), Token: Token(out.Token), NotAfter: out.NotAfter, User: out.User}, nil
}

func checkAnswerVersion(v string) error {
	if err := checkVersion(v, "the peer's gateway"); err != nil {
		if errors.Is(err, ErrIncompatible) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrAnswer, foreign.Err(err))
	}
	return nil
}

// do sends a request to an endpoint of the table and reads the answer.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	e, _ := lookup(method, path)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.send(ctx, req, func(resp *http.Response) error { return c.read(resp, e.answer, out) })
}

// send makes one request on its own connection and passes the response to use.
func (c *Client) send(ctx context.Context, req *http.Request, use func(*http.Response) error) error {
	req.Header.Set(VersionHeader, ProtocolVersion)
	// An http.Transport continues dialling after the request has given up, so it gets an open
	// connection.
	conn, err := c.dial(ctx, "tcp", c.addr)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = conn.Close() }()
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ExpectContinueTimeout:  loadGrace,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	if c.direct != nil {
		transport.TLSClientConfig = c.direct.tls
		req.Header.Set("Authorization", "Bearer "+string(c.direct.token))
	}
	resp, err := transport.RoundTrip(req) // it follows no redirect
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return use(resp)
}

// read reads an answer of at most most bytes of JSON, or the error that it contains.
func (c *Client) read(resp *http.Response, most int, out any) error {
	if resp.StatusCode != http.StatusOK {
		most = smallBody
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case err != nil:
		return c.unreachable(err)
	case resp.StatusCode != http.StatusOK:
		return failure(resp, answer)
	case len(answer) > most:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrAnswer, most)
	}
	if v := resp.Header.Get(VersionHeader); v == "" {
		return fmt.Errorf("%w: no header %s: this is no postern gateway", ErrAnswer, VersionHeader)
	}
	if err := bounded.Unmarshal(answer, most, out); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if v, ok := out.(interface{ version() string }); ok {
		return checkAnswerVersion(v.version())
	}
	return nil
}

func (c *Client) unreachable(err error) error {
	return &UnreachableError{Address: c.addr, Err: foreign.Err(err)}
}

// failure reads an error. Its text is untrusted.
func failure(resp *http.Response, body []byte) error {
	e := &Error{Status: resp.StatusCode}
	var b errorBody
	if bounded.Unmarshal(body, smallBody, &b) == nil && b.Code != "" {
		e.Code, e.Message = fit(b.Code, codeForm, 40), sentence(b.Message)
	} else if resp.Header.Get(VersionHeader) == "" {
		return fmt.Errorf("%w: HTTP status %d without header %s: this is no postern gateway", ErrAnswer, resp.StatusCode, VersionHeader)
	}
	if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 32); err == nil {
		e.RetryAfter = min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	return e
}
