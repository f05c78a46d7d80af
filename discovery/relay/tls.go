package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// roots returns the certificates that may sign the server's; nil = the system's.
func (s Server) roots() (*x509.CertPool, error) {
	if s.CAData == nil {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.CAData) {
		return nil, fmt.Errorf("relay %s: the CA file has no certificate in PEM form", s.Address)
	}
	return pool, nil
}

// tlsConfig returns the configuration of one connection.
func (s Server) tlsConfig() (*tls.Config, error) {
	host, _, err := s.hostPort()
	if err != nil {
		return nil, err
	}
	roots, err := s.roots()
	if err != nil {
		return nil, err
	}
	name := s.ServerName
	if name == "" {
		name = host
	}
	return &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// maxNames bounds the names of a certificate that are shown.
const maxNames = 4

// explainTLS explains a failed handshake and what to do. Whoever answers at the server's address
// chooses the certificate: its names are shown only if they have the form of names, and the
// library's errors without quotes from it.
func explainTLS(err error, name string) string {
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &host):
		return fmt.Sprintf("its certificate is for another name than %q (it is for %s): set serverName to a name in the certificate", name, names(host.Certificate))
	case errors.As(err, &authority):
		return fmt.Sprintf("its certificate is signed by nobody we know (%v): set caFile to the certificate that signed it", foreign.Err(authority))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("its certificate is not valid now (%v): renew it, or correct this machine's clock", foreign.Err(invalid))
	case errors.As(err, &record):
		return "it does not speak TLS on this port: set the TLS port (usually 5349 or 443), or transport tcp"
	}
	return fmt.Sprintf("TLS handshake: %v", foreign.Err(err))
}

// aboutCertificate reports whether TLS failed because of the server's certificate.
func aboutCertificate(err error) bool {
	var failed *tls.CertificateVerificationError
	return errors.As(err, &failed)
}

// names returns those that a certificate is valid for.
func names(c *x509.Certificate) string {
	if c == nil {
		return "another name"
	}
	all := foreign.Fit(c.DNSNames, foreign.Host)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	switch {
	case len(all) == 0:
		return "no name"
	case len(all) > maxNames:
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), len(all)-maxNames)
	}
	return strings.Join(all, ", ")
}
