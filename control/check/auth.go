package check

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Auth checks the peer's auth service: it connects to it and asks for its hello.
func Auth(ctx context.Context, dial DialFunc, f Facts) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceAuth, f)
	if f.Stock || !f.Address.IsValid() {
		return r.off(catalogue.AuthOff)
	}
	to := f.endpoint(api.PortAuth)
	r.address = to.String()
	p := catalogue.Params{Address: r.address, Timeout: Timeout, Path: auth.HelloPath}
	c, err := dial(ctx, to)
	if err != nil {
		p.Detail = err.Error()
		return r.fail(api.Error, StageTCP, byFailure(err, catalogue.AuthRefused, catalogue.AuthTimeout, catalogue.AuthBroken), p)
	}
	defer c.Close()
	r.passed(StageTCP, to.String())

	asked := time.Now()
	a, err := get(ctx, c, to.String(), auth.HelloPath, "")
	if err != nil {
		return r.exchangeFailed(p, err)
	}
	return r.authAnswer(p, a, time.Since(asked))
}

// authAnswer is the result of an HTTP answer to the question for a hello.
func (r *recorder) authAnswer(p catalogue.Params, a answer, rtt time.Duration) Result {
	if a.status != http.StatusOK {
		return r.authStatus(p, a.status)
	}
	r.passed(StageHTTP, httpSeen(a.status))
	hello, err := auth.ParseHello(a.body)
	switch {
	case errors.Is(err, auth.ErrIncompatible):
		p.Version, p.OwnVersion, p.Detail = hello.Version, auth.ProtocolVersion, foreign.Err(err).Error()
		return r.fail(api.Error, StageAuth, catalogue.AuthVersion, p)
	case err != nil:
		p.Detail = foreign.Err(err).Error()
		return r.fail(api.Error, StageHTTP, catalogue.AuthNotUnderstood, p)
	}
	r.passed(StageAuth, "version "+hello.Version)
	res := r.ok(rtt)
	if !hello.Grants(api.ServiceAuth) {
		res = r.off(catalogue.AuthOff)
	}
	res.Hello = &hello
	return res
}

// authStatus is the result of an HTTP answer that is no success.
func (r *recorder) authStatus(p catalogue.Params, status int) Result {
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
