package check

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/foreign"
)

const (
	// livePath is answered by every Kubernetes API server, for anyone if anonymous requests are
	// enabled.
	livePath = "/livez"
	// versionPath returns the server's version in gitVersion.
	versionPath = "/version"
)

// APIServer checks the peer's API server through the tunnel: it connects, verifies the certificate,
// and asks whether the server is live, with the identity if there is one.
func APIServer(ctx context.Context, dial DialFunc, f Facts) verdict.Finding {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceAPIServer, api.ServiceAPIServer, f)
	if f.Stock || !f.Address.IsValid() {
		return r.off(catalogue.APIServerOff)
	}
	if granted, known := f.offers(api.ServiceAPIServer); known && !granted {
		return r.off(catalogue.APIServerOff)
	}
	c, p, res := r.connectInside(ctx, dial, api.PortAPIServer, livePath)
	if c == nil {
		return res
	}
	defer c.Close()
	name := cmp.Or(f.ServerName, catalogue.DefaultServerName)
	again := func(ctx context.Context) (net.Conn, error) { return dial(ctx, f.endpoint(api.PortAPIServer)) }
	return r.askAPIServer(ctx, c, question{p: p, host: name, path: livePath, dial: again,
		expected: expected{serverName: name, ca: f.CA, credentials: f.credentials()}})
}

// credentials returns what the peer issued to this gateway for its API server.
func (f Facts) credentials() credentials {
	return credentials{certificate: f.Identity, token: f.Token, tokenExpires: f.TokenExpires, user: f.User}
}

// question is one request to a server behind TLS, on an open connection.
type question struct {
	expected
	host, path string
	// anonymous sends no credentials; a server that demands them counts as live.
	anonymous bool
	// version asks for the server's version. Through a tunnel that would cost more than it is
	// worth.
	version bool
	p       catalogue.Params
	// dial opens a second connection if the first is slow to answer.
	dial func(context.Context) (net.Conn, error)
}

// askAPIServer checks an API server through TLS, HTTP and authentication.
func (r *recorder) askAPIServer(ctx context.Context, c net.Conn, q question) verdict.Finding {
	secure, err := q.handshake(ctx, c)
	switch {
	case err != nil && q.anonymous && overCertificate(err): // TLS 1.2 fails here already
		return r.apiExchangeFailed(q, err)
	case err != nil:
		return r.tlsFailed(q.expected, q.p, err)
	}
	r.passed(StageTLS, "certificate for "+q.serverName)
	x := newExchange(secure, q.host, q.token)
	a := q.ask(ctx, x, min(r.took(StageTCP), r.took(StageTLS)))
	if a.err != nil {
		return r.apiExchangeFailed(q, a.err)
	}
	r.Skew = a.skew
	res := r.apiStatus(q, a)
	if res.Outcome == api.OK && q.version && !a.again {
		sawVersion(ctx, x, strings.TrimSuffix(q.path, livePath)+versionPath, res.Stages)
	}
	return res
}

// sawVersion adds the server's version to the stages. It is only a help for readers and may be
// missing.
func sawVersion(ctx context.Context, x exchange, path string, stages []verdict.Stage) {
	a, err := x.get(ctx, path, true)
	if err != nil || a.status != http.StatusOK {
		return
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if json.Unmarshal(a.body, &v) != nil || v.GitVersion == "" {
		return
	}
	for i, s := range stages {
		if s.Name == StageHTTP {
			stages[i].Detail = cleanText(s.Detail + ", " + foreign.Of(v.GitVersion).As(foreign.Software))
		}
	}
}

// apiExchangeFailed is the result of a TLS connection without an HTTP answer.
func (r *recorder) apiExchangeFailed(q question, err error) verdict.Finding {
	switch {
	case overCertificate(err) && q.anonymous:
		r.passed(StageHTTP, "it demands a client certificate")
		return r.ok(0)
	case overCertificate(err):
		q.p.Detail = foreign.Err(err).Error()
		return r.rejected(q.credentials, q.p)
	}
	return r.exchangeFailed(q.p, err)
}

// apiStatus is the result of an HTTP answer.
func (r *recorder) apiStatus(q question, a try) verdict.Finding {
	p, status := q.p, a.status
	p.Status = status
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden
	switch {
	case denied && q.anonymous:
		// The server does not know the caller, which is as it should be.
	case denied && q.none():
		return r.fail(api.Error, StageAuth, catalogue.IdentityMissing, p)
	case status == http.StatusUnauthorized && q.expired():
		p.NotAfter = q.notAfter()
		return r.fail(api.Error, StageAuth, catalogue.IdentityExpired, p)
	case status == http.StatusUnauthorized:
		p.Token = q.certificate == nil
		p.NotBefore, p.NotAfter = q.invalid(time.Now().Add(r.Skew)) // by the server's clock
		return r.fail(api.Error, StageAuth, catalogue.APIServerUnauthorized, p)
	case status == http.StatusForbidden:
		p.User = q.user
		return r.fail(api.Warning, StageAuth, catalogue.APIServerForbidden, p)
	case status != http.StatusOK, a.page: // no API server answers with a web page
		return r.fail(api.Error, StageHTTP, catalogue.APIServerHTTP, p)
	}
	if a.took >= catalogue.SlowAnswer {
		return r.slow(p, a)
	}
	r.passed(StageHTTP, httpSeen(status))
	if !q.anonymous {
		r.passed(StageAuth, "")
	}
	return r.ok(a.took)
}

// slow is the result of a correct but late answer. If the server's own share is unclear, because it
// would not be slow without the path's share or was seen only once, nobody is blamed.
func (r *recorder) slow(p catalogue.Params, a try) verdict.Finding {
	p.Took, p.Way = a.took, a.way
	if a.twice {
		return r.fail(api.Warning, StageHTTP, catalogue.APIServerSlow, p)
	}
	r.stage(StageHTTP, api.Unknown, httpSeen(p.Status))
	return r.found(api.Unknown, StageHTTP, catalogue.APIServerSlow, p)
}

// took returns how long a stage lasted.
func (r *recorder) took(stage string) time.Duration {
	for _, s := range r.Stages {
		if s.Name == stage {
			return s.Took
		}
	}
	return 0
}
