package check

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Auth checks the peer's auth service: it connects, asks for a hello, and returns the hello if
// there was one.
func Auth(ctx context.Context, dial DialFunc, f Facts) (verdict.Finding, *auth.Hello) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceAuth, api.ServiceAuth, f)
	if f.Stock || !f.Address.IsValid() {
		return r.off(catalogue.AuthOff), nil
	}
	c, p, res := r.connectInside(ctx, dial, api.PortAuth, auth.HelloPath)
	if c == nil {
		return res, nil
	}
	defer c.Close()
	asked := time.Now()
	a, err := get(ctx, c, r.Address, auth.HelloPath, "")
	if err != nil {
		return r.exchangeFailed(p, err), nil
	}
	return r.authAnswer(p, a, time.Since(asked))
}

// authAnswer is the result of an HTTP answer to the hello request.
func (r *recorder) authAnswer(p catalogue.Params, a answer, rtt time.Duration) (verdict.Finding, *auth.Hello) {
	if a.status != http.StatusOK {
		return r.authStatus(p, a.status), nil
	}
	r.passed(StageHTTP, httpSeen(a.status))
	hello, err := auth.ParseHello(a.body)
	switch {
	case errors.Is(err, auth.ErrIncompatible):
		p.Version, p.OwnVersion, p.Detail = hello.Version, auth.ProtocolVersion, foreign.Err(err).Error()
		return r.fail(api.Error, StageAuth, catalogue.AuthVersion, p), nil
	case err != nil:
		p.Detail = foreign.Err(err).Error()
		return r.fail(api.Error, StageHTTP, catalogue.AuthNotUnderstood, p), nil
	}
	r.passed(StageAuth, "version "+hello.Version)
	if !hello.Grants(api.ServiceAuth) {
		return r.off(catalogue.AuthOff), &hello
	}
	return r.ok(rtt), &hello
}

// authStatus is the result of an unsuccessful HTTP answer.
func (r *recorder) authStatus(p catalogue.Params, status int) verdict.Finding {
	p.Status = status
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return r.fail(api.Error, StageAuth, catalogue.AuthDenied, p)
	case http.StatusUpgradeRequired, http.StatusHTTPVersionNotSupported:
		p.OwnVersion = auth.ProtocolVersion
		return r.fail(api.Error, StageAuth, catalogue.AuthVersion, p)
	case http.StatusNotFound:
		p.Detail = "HTTP 404 for " + auth.HelloPath
		return r.fail(api.Error, StageHTTP, catalogue.AuthNotUnderstood, p)
	}
	return r.fail(api.Error, StageHTTP, catalogue.AuthHTTP, p)
}
