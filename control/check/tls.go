package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// expected is what a server must show, and what is shown to it.
type expected struct {
	serverName string
	// ca holds the PEM certificates of the server's possible authorities; empty means the system's.
	ca []byte
	credentials
}

// credentials are this gateway's: a client certificate or a bearer token, or neither.
type credentials struct {
	certificate *tls.Certificate
	token       Token
	// tokenExpires is zero if unknown.
	tokenExpires time.Time
	// user is this gateway's user name at the API server; empty if unknown.
	user string
}

func (c credentials) none() bool { return c.certificate == nil && c.token == "" }

// notAfter is when they expire; zero if unknown.
func (c credentials) notAfter() time.Time {
	switch {
	case c.certificate != nil && c.certificate.Leaf != nil:
		return c.certificate.Leaf.NotAfter
	case c.certificate == nil:
		return c.tokenExpires
	}
	return time.Time{}
}

func (c credentials) expired() bool {
	t := c.notAfter()
	return !t.IsZero() && time.Now().After(t)
}

// invalid returns from when on they are valid if they are not yet at a time, or until when if they
// no longer are, as far as known.
func (c credentials) invalid(at time.Time) (yet, after time.Time) {
	if c.certificate != nil && c.certificate.Leaf != nil && at.Before(c.certificate.Leaf.NotBefore) {
		return c.certificate.Leaf.NotBefore, time.Time{}
	}
	if end := c.notAfter(); !end.IsZero() && at.After(end) {
		return time.Time{}, end
	}
	return time.Time{}, time.Time{}
}

var (
	errNoCA    = errors.New("what is given as the authority holds no PEM certificate")
	errNoChain = errors.New("the server showed no certificate")
	// errNoCertificate: the server asked for a certificate, got none and closed TLS. In TLS 1.2 its
	// alert, handshake_failure (RFC 5246 §7.4.6), does not say why.
	errNoCertificate = errors.New("the server wants a client certificate")
)

// handshake performs a TLS client handshake. HTTP/2 is not offered: a single request gains nothing
// from it. Nothing secret goes to a server whose certificate does not verify.
func (e expected) handshake(ctx context.Context, c net.Conn) (*tls.Conn, error) {
	conf := &tls.Config{ServerName: e.serverName, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	roots, err := e.roots()
	if err != nil {
		return nil, err
	}
	conf.RootCAs = roots
	demanded := false
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if e.certificate == nil {
			demanded = true
			return &tls.Certificate{}, nil // how crypto/tls wants "none" expressed
		}
		return e.certificate, nil
	}
	t := tls.Client(c, conf)
	switch err := t.HandshakeContext(ctx); {
	case err != nil && demanded && remoteAlert(err):
		return nil, fmt.Errorf("%w: %w", errNoCertificate, err)
	case err != nil:
		return nil, err
	}
	return t, nil
}

// roots are the possible authorities; nil means the system's.
func (e expected) roots() (*x509.CertPool, error) {
	if len(e.ca) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(e.ca) {
		return nil, errNoCA
	}
	return pool, nil
}

// verify checks the certificates that failed a handshake against the authorities alone, ignoring
// their names.
func (e expected) verify(failed error) error {
	shown, ok := errors.AsType[*tls.CertificateVerificationError](failed)
	if !ok || len(shown.UnverifiedCertificates) == 0 {
		return errNoChain
	}
	roots, err := e.roots()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range shown.UnverifiedCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := shown.UnverifiedCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		return fmt.Errorf("verify without a name: %w", err)
	}
	return nil
}

// authorities returns the names of the trusted authorities, at most as many as a message shows.
func (e expected) authorities() []string {
	var out []string
	for rest := e.ca; len(out) < 8; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, foreign.Of(cmp.Or(c.Subject.CommonName, c.Subject.String())).As(foreign.Authority))
		}
	}
	return out
}

// tlsFailed is the result of a failed handshake: what was shown compared to what was expected.
func (r *recorder) tlsFailed(e expected, p catalogue.Params, err error) verdict.Finding {
	p.Detail = catalogue.Reason(err)
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		// crypto/tls compares names before it verifies the signature: without that, the server may
		// claim any name.
		if unsigned := e.verify(err); unsigned != nil {
			return r.tlsFailed(e, p, unsigned)
		}
		p.ServerName, p.Names, p.Signed = name.Host, names(name.Certificate), len(e.ca) > 0
		p.Detail = "the certificate is valid for " + cmp.Or(catalogue.List(p.Names), "no name") // Go's own text has the names as they are
		return r.fail(api.Error, StageTLS, catalogue.TLSWrongName, p)
	}
	if ca, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if ca.Cert != nil {
			p.Issuer = foreign.Of(cmp.Or(ca.Cert.Issuer.CommonName, ca.Cert.Issuer.String())).As(foreign.Authority)
		}
		p.Authorities = e.authorities()
		if slices.Contains(p.Authorities, p.Issuer) { // every kubeadm cluster's is called kubernetes
			p.IssuerKey = keyID(ca.Cert.AuthorityKeyId)
		}
		return r.fail(api.Error, StageTLS, catalogue.TLSUnknownCA, p)
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired {
		p.NotBefore, p.NotAfter = bad.Cert.NotBefore, bad.Cert.NotAfter
		if shown, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && len(shown.UnverifiedCertificates) > 0 && !bad.Cert.Equal(shown.UnverifiedCertificates[0]) {
			p.Issuer = foreign.Of(cmp.Or(bad.Cert.Subject.CommonName, bad.Cert.Subject.String())).As(foreign.Authority)
		}
		return r.fail(api.Error, StageTLS, catalogue.TLSNotValidNow, p)
	}
	switch {
	case errors.Is(err, errNoCA):
		return r.fail(api.Error, StageTLS, catalogue.TLSUnknownCA, p)
	case overCertificate(err):
		return r.rejected(e.credentials, p)
	}
	if _, shown := errors.AsType[*tls.CertificateVerificationError](err); shown { // TLS works, but the certificate is none for a server
		p.Failure = catalogue.FailureCertificate
		return r.fail(api.Error, StageTLS, catalogue.TLSFailed, p)
	}
	code := catalogue.TLSFailed
	if how := classify(err); how == timedOut || how == broken && !remoteAlert(err) {
		code = failures[r.Target][how]
	}
	return r.fail(api.Error, StageTLS, code, p)
}

// keyID returns the beginning of a key identifier, as openssl writes it.
func keyID(id []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", id[:min(len(id), 8)]), " ", ":")
}

// names lists what a certificate is valid for.
func names(c *x509.Certificate) []string {
	var out []string
	for _, name := range c.DNSNames {
		out = append(out, foreign.Of(name).As(foreign.Host))
	}
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// overCertificate reports whether the other side closed TLS with an alert about our certificate
// (RFC 8446 §6.2: bad_certificate … certificate_required, access_denied). In TLS 1.3 that arrives
// after the client's handshake, so on the first read. crypto/tls does not export the alert's type,
// so its text decides.
func overCertificate(err error) bool {
	switch {
	case errors.Is(err, errNoCertificate):
		return true
	case !remoteAlert(err):
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

// rejected is the result of an alert: an identity was not accepted or had expired, or one was
// demanded.
func (r *recorder) rejected(c credentials, p catalogue.Params) verdict.Finding {
	switch {
	case c.certificate == nil:
		return r.fail(api.Error, StageAuth, catalogue.IdentityMissing, p)
	case c.expired():
		p.NotAfter = c.notAfter()
		return r.fail(api.Error, StageAuth, catalogue.IdentityExpired, p)
	}
	return r.fail(api.Error, StageAuth, catalogue.IdentityRejected, p)
}
