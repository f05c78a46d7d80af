package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// maxCertificate bounds a certificate with its chain, in bytes of PEM, as does its field in an
// answer.
const maxCertificate = 32 << 10

// Identity is a client certificate and its key, or a token. It redacts itself.
type Identity struct {
	// CertificatePEM is what the peer issued; KeyPEM (PKCS #8) is our secret. Both are empty if
	// there is a Token.
	CertificatePEM, KeyPEM []byte
	Token                  Token
	// User is the name at the peer's API server; empty if a token does not contain it.
	User                string
	NotBefore, NotAfter time.Time
	// TLS is the certificate and its key for a tls.Config; nil if there is a Token.
	TLS *tls.Certificate
}

// String shows whose it is and until when.
func (i Identity) String() string {
	return fmt.Sprintf("(identity %s until %s, secret hidden)", i.User, i.NotAfter.UTC().Format(time.RFC3339))
}

// Format makes every fmt verb print String's result.
func (i Identity) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(i.String())) }

// LogValue makes slog print String's result.
func (i Identity) LogValue() slog.Value { return slog.StringValue(i.String()) }

// MarshalText makes JSON and YAML encode String's result.
func (i Identity) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// early reports whether a certificate is not valid yet, by more than clocks differ. A token is
// judged by its issuer, with the same clock.
func (i Identity) early(now time.Time) bool {
	return i.Token == "" && i.NotBefore.After(now.Round(0).Add(backdate))
}

// newIdentity checks that a certificate matches the key: the issuer is another gateway, which may
// be broken or malicious.
func newIdentity(certPEM, keyPEM []byte) (Identity, error) {
	if len(certPEM) > maxCertificate {
		return Identity{}, fmt.Errorf("%w: a certificate of %d bytes, and at most %d are taken", ErrAnswer, len(certPEM), maxCertificate)
	}
	certPEM = onlyCertificates(certPEM)
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: the certificate: %w", ErrAnswer, err)
	}
	leaf := pair.Leaf
	if leaf == nil {
		return Identity{}, fmt.Errorf("%w: no certificate", ErrAnswer)
	}
	if !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return Identity{}, fmt.Errorf("%w: the certificate is not for clients", ErrAnswer)
	}
	if !leaf.NotBefore.Before(leaf.NotAfter) {
		return Identity{}, fmt.Errorf("%w: the certificate is never valid", ErrAnswer)
	}
	return Identity{
		CertificatePEM: certPEM, KeyPEM: keyPEM, User: clean(leaf.Subject.CommonName, maxUser),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, TLS: &pair,
	}, nil
}

// keyAndCSR creates a key and a signing request for it. The subject is empty unless the issuer has
// said which user to ask for: it decides who we are.
func keyAndCSR(user string) (keyPEM, csrPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	return encodeRequest(key, user)
}

func encodeRequest(key crypto.Signer, user string) (keyPEM, csrPEM []byte, err error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, errors.New("the new key cannot be encoded")
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate signing request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), nil
}
