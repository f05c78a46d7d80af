// Package pki creates certificate authorities and certificates for tests and the lab: ECDSA
// P-256, valid from an hour ago for a day.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// CA signs certificates. It is safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both in PEM.
type Pair struct{ Cert, Key []byte }

// NewCA creates a self-signed authority.
func NewCA(commonName string) (*CA, error) {
	now := time.Now()
	return NewCABetween(now.Add(-time.Hour), now.Add(24*time.Hour), commonName)
}

// NewCABetween creates a self-signed authority with the given validity.
func NewCABetween(notBefore, notAfter time.Time, commonName string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", commonName, err)
	}
	template, err := template(pkix.Name{CommonName: commonName})
	if err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = notBefore, notAfter
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back %s: %w", commonName, err)
	}
	return &CA{cert: cert, key: key}, nil
}

// Pair returns the authority's own certificate and key.
func (ca *CA) Pair() (Pair, error) { return encode(ca.cert.Raw, ca.key) }

// CertPEM returns the authority's certificate.
func (ca *CA) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Pool returns a pool with only this authority.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// Server creates a server certificate for names and IP addresses.
func (ca *CA) Server(names ...string) (Pair, error) {
	now := time.Now()
	return ca.ServerBetween(now.Add(-time.Hour), now.Add(24*time.Hour), names...)
}

// ServerBetween is Server with the given validity.
func (ca *CA) ServerBetween(notBefore, notAfter time.Time, names ...string) (Pair, error) {
	t, err := template(pkix.Name{CommonName: names[0]})
	if err != nil {
		return Pair{}, err
	}
	t.NotBefore, t.NotAfter = notBefore, notAfter
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	return ca.sign(t)
}

// Client creates a client certificate for the subject, and for names that a server might have.
func (ca *CA) Client(subject pkix.Name, names ...string) (Pair, error) {
	t, err := template(subject)
	if err != nil {
		return Pair{}, err
	}
	t.ExtKeyUsage, t.DNSNames = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, names
	return ca.sign(t)
}

// Unnamed creates a server certificate with a common name alone.
func (ca *CA) Unnamed(commonName string) (Pair, error) {
	t, err := template(pkix.Name{CommonName: commonName})
	if err != nil {
		return Pair{}, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return ca.sign(t)
}

func (ca *CA) sign(t *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", t.Subject, err)
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign %s: %w", t.Subject, err)
	}
	return encode(der, key)
}

// TLS returns the pair as a crypto/tls certificate.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Write writes the pair to dir as NAME.crt and NAME.key (mode 0600) and returns both paths.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(certFile, p.Cert, 0o644); err != nil {
		return "", "", err
	}
	return certFile, keyFile, os.WriteFile(keyFile, p.Key, 0o600)
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}),
	}, nil
}
