package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// roots are the certificates that may sign the server's; nil = the system's.
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

// tlsConfig is for one connection.
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

// explainTLS puts what a handshake failed on into words, with what to do.
func explainTLS(err error, name string) string {
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &host):
		return fmt.Sprintf("its certificate is for another name than %q (%v): set serverName to a name in the certificate", name, host)
	case errors.As(err, &authority):
		return fmt.Sprintf("its certificate is signed by nobody we know (%v): set caFile to the certificate that signed it", authority)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("its certificate is not valid now (%v): renew it, or mend this machine's clock", invalid)
	case errors.As(err, &record):
		return "it does not speak TLS on this port: set the TLS port (usually 5349 or 443), or transport tcp"
	}
	return fmt.Sprintf("TLS handshake: %v", err)
}
