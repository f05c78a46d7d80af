package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// livePath is answered by every Kubernetes API server, to anybody where anonymous
// requests are on.
const livePath = "/livez"

// APIServer checks the peer's API server through the tunnel: it connects, makes sure of
// the certificate, and asks whether the server lives, with the identity when there is one.
func APIServer(ctx context.Context, dial DialFunc, f Facts) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceAPIServer, f)
	if f.Stock || !f.Address.IsValid() {
		return r.off(APIServerOff)
	}
	if granted, known := f.offers(api.ServiceAPIServer); known && !granted {
		return r.off(APIServerOff)
	}
	to := f.endpoint(api.PortAPIServer)
	p := Params{Address: to.String(), Timeout: Timeout, Path: livePath}
	c, err := dial(ctx, to)
	if err != nil {
		p.Detail = err.Error()
		return r.fail(api.Error, StageTCP, byFailure(err, APIServerRefused, APIServerTimeout, APIServerBroken), p)
	}
	defer c.Close()
	r.passed(StageTCP, to.String())

	secure, err := handshake(ctx, c, f)
	if err != nil {
		return r.tlsFailed(p, err)
	}
	r.passed(StageTLS, "certificate for "+serverName(f))

	asked := time.Now()
	a, err := get(ctx, secure, serverName(f), livePath)
	if err != nil {
		return r.apiExchangeFailed(p, err)
	}
	return r.apiStatus(p, a.status, time.Since(asked))
}

func serverName(f Facts) string { return or(f.ServerName, DefaultServerName) }

// handshake does TLS as a client of the API server. HTTP/2 is not offered: one request
// is sent and nothing gained by it.
func handshake(ctx context.Context, c net.Conn, f Facts) (*tls.Conn, error) {
	conf := &tls.Config{ServerName: serverName(f), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(f.CA) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(f.CA) {
			return nil, errNoCA
		}
	}
	if f.Identity != nil {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return f.Identity, nil
		}
	}
	t := tls.Client(c, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

var errNoCA = errors.New("the authority that the peer announced holds no PEM certificate")

// tlsFailed is the result of a handshake that failed.
func (r *recorder) tlsFailed(p Params, err error) Result {
	p.Detail = err.Error()
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		p.ServerName, p.Names = name.Host, names(name.Certificate)
		return r.fail(api.Error, StageTLS, TLSWrongName, p)
	}
	if ca, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if ca.Cert != nil {
			p.Issuer = or(ca.Cert.Issuer.CommonName, ca.Cert.Issuer.String())
		}
		return r.fail(api.Error, StageTLS, TLSUnknownCA, p)
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired {
		p.NotBefore, p.NotAfter = bad.Cert.NotBefore, bad.Cert.NotAfter
		return r.fail(api.Error, StageTLS, TLSNotValidNow, p)
	}
	switch {
	case errors.Is(err, errNoCA):
		return r.fail(api.Error, StageTLS, TLSUnknownCA, p)
	case overCertificate(err):
		return r.rejected(p)
	}
	switch classify(err) {
	case timedOut:
		return r.fail(api.Error, StageTLS, APIServerTimeout, p)
	case broken:
		if !remoteAlert(err) {
			return r.fail(api.Error, StageTLS, APIServerBroken, p)
		}
	}
	return r.fail(api.Error, StageTLS, TLSFailed, p)
}

// names lists what a certificate is valid for.
func names(c *x509.Certificate) []string {
	out := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// overCertificate reports whether the other side ended TLS with an alert about our
// certificate (RFC 8446 §6.2: bad_certificate … certificate_required, access_denied).
// In TLS 1.3 that comes after the client's handshake is done, hence on the first read.
// crypto/tls keeps the alert's type to itself, so its text decides.
func overCertificate(err error) bool {
	if !remoteAlert(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "certificate") || strings.Contains(text, "access denied")
}

// remoteAlert reports whether err is a TLS alert from the other side.
func remoteAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// rejected is the result of an alert: with an identity it was not accepted, without one
// it was demanded, or it had expired.
func (r *recorder) rejected(p Params) Result {
	f := r.facts
	switch {
	case f.Identity == nil:
		return r.fail(api.Error, StageAuth, IdentityMissing, p)
	case expired(f.Identity):
		p.NotAfter = f.Identity.Leaf.NotAfter
		return r.fail(api.Error, StageAuth, IdentityExpired, p)
	}
	return r.fail(api.Error, StageAuth, IdentityRejected, p)
}

func expired(id *tls.Certificate) bool {
	return id.Leaf != nil && time.Now().After(id.Leaf.NotAfter)
}

// apiExchangeFailed is the result of a TLS connection that gave no HTTP answer.
func (r *recorder) apiExchangeFailed(p Params, err error) Result {
	p.Detail = err.Error()
	if overCertificate(err) {
		return r.rejected(p)
	}
	switch classify(err) {
	case timedOut:
		return r.fail(api.Error, StageHTTP, APIServerTimeout, p)
	case garbled:
		return r.fail(api.Error, StageHTTP, TLSFailed, p)
	}
	return r.fail(api.Error, StageHTTP, APIServerBroken, p)
}

// apiStatus is the result of an HTTP answer.
func (r *recorder) apiStatus(p Params, status int, rtt time.Duration) Result {
	p.Status = status
	f := r.facts
	switch {
	case status == http.StatusUnauthorized && f.Identity == nil,
		status == http.StatusForbidden && f.Identity == nil:
		return r.fail(api.Error, StageAuth, IdentityMissing, p)
	case status == http.StatusUnauthorized && expired(f.Identity):
		p.NotAfter = f.Identity.Leaf.NotAfter
		return r.fail(api.Error, StageAuth, IdentityExpired, p)
	case status == http.StatusUnauthorized:
		return r.fail(api.Error, StageAuth, APIServerUnauthorized, p)
	case status == http.StatusForbidden:
		return r.fail(api.Warning, StageAuth, APIServerForbidden, p)
	case status != http.StatusOK:
		return r.fail(api.Error, StageHTTP, APIServerHTTP, p)
	}
	r.passed(StageHTTP, "HTTP 200")
	r.passed(StageAuth, "")
	return r.ok(rtt)
}
