package check

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/egress"
)

// Names of the checks outside the tunnel, next to those inside.
var (
	NameAuthDirect      = verdict.Outside(api.ServiceAuth)
	NameAPIServerDirect = verdict.Outside(api.ServiceAPIServer)
)

// StageDNS resolves a URL's host.
const StageDNS = "dns"

// ServiceFacts are what is known about a peer's services besides its hello.
type ServiceFacts struct {
	// Direct is what may be tried outside the tunnel.
	Direct DirectFacts
	// Token is the token that the peer issued for its API server instead of a certificate; empty if
	// there is none. TokenExpires is zero if the issuer did not say.
	Token        Token
	TokenExpires time.Time
	// User is this gateway's user name at the peer's API server; empty if unknown.
	User string
}

// DirectFacts say how to reach a peer's services outside the tunnel. They come from this gateway's
// own configuration (spec.peers[].outOfBand) and never from a peer: announced URLs are not dialled,
// and no redirect is followed.
type DirectFacts struct {
	// AuthURL and APIServerURL are https URLs; an empty one is not tried.
	AuthURL, APIServerURL string
	// CA holds the PEM certificates of the servers' authorities; empty means the system's.
	CA []byte
	// Token is only for auth. It is sent only after the server's certificate is verified.
	Token Token
	// Used says that the services are used outside the tunnel (mode OutOfBand), not just compared.
	Used bool
}

// AuthDirect checks the peer's auth service outside the tunnel; false if the configuration has no
// URL for it.
func AuthDirect(ctx context.Context, n Network, f Facts) (verdict.Finding, bool) {
	if f.Direct.AuthURL == "" {
		return verdict.Finding{}, false
	}
	r, p := beginDirect(NameAuthDirect, api.ServiceAuth, f)
	p.Path = auth.HelloPath
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	c, o, res := r.connect(ctx, n, f.Direct.AuthURL, catalogue.AuthURLUnreachable, &p)
	if c == nil {
		return res, true
	}
	defer c.Close()
	e := expected{serverName: o.host, ca: f.Direct.CA, credentials: credentials{token: f.Direct.Token, tokenExpires: f.Direct.Token.expires()}}
	secure, err := e.handshake(ctx, c)
	if err != nil {
		return r.tlsFailed(e, p, err), true
	}
	r.passed(StageTLS, "certificate for "+o.host)
	asked := time.Now()
	a, err := get(ctx, secure, o.hostPort(), o.path+auth.HelloPath, f.Direct.Token)
	switch {
	case overCertificate(err):
		p.Detail = err.Error()
		return r.tokenRejected(e.credentials, p), true
	case err != nil:
		return r.exchangeFailed(p, err), true
	case a.status == http.StatusUnauthorized:
		p.Status = a.status
		return r.tokenRejected(e.credentials, p), true
	}
	res, _ = r.authAnswer(p, a, time.Since(asked)) // the hello that counts is the one to the key, inside the tunnel
	return res, true
}

// tokenRejected distinguishes a missing token, an expired one and one that is not accepted.
func (r *recorder) tokenRejected(c credentials, p catalogue.Params) verdict.Finding {
	switch {
	case c.token == "":
		p.Failure = catalogue.FailureMissing
	case c.expired():
		p.Failure, p.NotAfter = catalogue.FailureExpired, c.tokenExpires
	}
	return r.fail(api.Error, StageAuth, catalogue.AuthTokenRejected, p)
}

// APIServerDirect checks the peer's API server outside the tunnel; false if the configuration has
// no URL for it.
func APIServerDirect(ctx context.Context, n Network, f Facts) (verdict.Finding, bool) {
	if f.Direct.APIServerURL == "" {
		return verdict.Finding{}, false
	}
	r, p := beginDirect(NameAPIServerDirect, api.ServiceAPIServer, f)
	p.Path = livePath
	if granted, known := f.offers(api.ServiceAPIServer); known && !granted {
		return r.off(catalogue.APIServerOff), true
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	c, o, res := r.connect(ctx, n, f.Direct.APIServerURL, catalogue.APIServerURLUnreachable, &p)
	if c == nil {
		return res, true
	}
	defer c.Close()
	again := func(ctx context.Context) (net.Conn, error) {
		r, p := beginDirect(NameAPIServerDirect, api.ServiceAPIServer, f)
		c, _, res := r.connect(ctx, n, f.Direct.APIServerURL, catalogue.APIServerURLUnreachable, &p)
		if c == nil {
			return nil, errors.New(res.Params().Detail)
		}
		return c, nil
	}
	return r.askAPIServer(ctx, c, question{p: p, host: o.hostPort(), path: o.path + livePath, version: true, dial: again,
		expected: expected{serverName: o.host, ca: f.Direct.CA, credentials: f.credentials()}}), true
}

func beginDirect(name, target string, f Facts) (*recorder, catalogue.Params) {
	r := begin(name, target, f)
	r.Via, r.Used = verdict.ViaDirect, f.Direct.Used
	return r, catalogue.Params{Service: target, Direct: true, Timeout: Timeout}
}

// outside is a parsed URL that may be tried.
type outside struct {
	url  string // without user, query and fragment
	host string
	port uint16
	path string // the URL's own, without a trailing slash
}

var errURL = errors.New("want https://HOST or https://HOST:PORT")

// parseOutside parses a configured URL. Without TLS the server could not be authenticated.
func parseOutside(raw string) (outside, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return outside{}, errURL
	}
	o := outside{host: u.Hostname(), port: 443, path: strings.TrimRight(u.EscapedPath(), "/")}
	if u.Port() != "" {
		at, err := netip.ParseAddrPort("0.0.0.0:" + u.Port())
		if err != nil || at.Port() == 0 {
			return outside{}, errURL
		}
		o.port = at.Port()
	}
	o.url = "https://" + o.hostPort() + o.path
	return o, nil
}

func (o outside) hostPort() string { return net.JoinHostPort(o.host, strconv.Itoa(int(o.port))) }

// connect resolves and dials a URL: stages dns and tcp. If the connection is nil the result says
// what failed.
func (r *recorder) connect(ctx context.Context, n Network, raw string, unreachable catalogue.Code, p *catalogue.Params) (net.Conn, outside, verdict.Finding) {
	o, err := parseOutside(raw)
	if err != nil {
		r.Address = cleanURL(raw)
		p.Address, p.Failure, p.Detail = r.Address, catalogue.FailureURL, err.Error()
		return nil, o, r.fail(api.Error, StageDNS, unreachable, *p)
	}
	r.Address, p.Address = o.url, o.url
	if n.Egress != nil && n.Egress.Proxied(o.hostPort()) {
		return r.connectProxied(ctx, n.Egress, o, unreachable, p)
	}
	c, to, stage, err := r.reach(ctx, n, o.host, o.port)
	if err == nil {
		return c, o, verdict.Finding{}
	}
	p.Remote, p.Failure, p.Detail = to, catalogue.FailureName, catalogue.Reason(err)
	if stage == StageTCP {
		p.Failure = connectFailure(err)
	}
	if catalogue.Exhausted(err) {
		unreachable, p.Failure = catalogue.SocketsUsedUp, ""
	}
	return nil, o, r.fail(api.Error, stage, unreachable, *p)
}

// connectProxied connects to a URL's host through a proxy: stage tcp. A refusal by the proxy
// follows from the check of the proxy.
func (r *recorder) connectProxied(ctx context.Context, e Egress, o outside, unreachable catalogue.Code, p *catalogue.Params) (net.Conn, outside, verdict.Finding) {
	c, err := e.DialContext(ctx, "tcp", o.hostPort())
	if err == nil {
		r.passed(StageTCP, o.hostPort()+" through the proxy")
		return c, o, verdict.Finding{}
	}
	p.Failure, p.Detail = catalogue.FailureRoute, catalogue.Reason(err)
	if refused := (*egress.Error)(nil); errors.As(err, &refused) {
		p.Detail = refused.Error()
		if blamed(refused) {
			r.Rests = append(r.Rests, verdict.Own(NameProxy))
		}
	}
	return nil, o, r.fail(api.Error, StageTCP, unreachable, *p)
}

// cleanURL returns a URL for a message: without user and query, which may be secrets.
func cleanURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "what is configured"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// connectFailure classifies a failed connection.
func connectFailure(err error) catalogue.Failure {
	switch classify(err) {
	case refused:
		return catalogue.FailureRefused
	case timedOut:
		return catalogue.FailureTimeout
	}
	return catalogue.FailureRoute
}
