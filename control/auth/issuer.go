package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrCSR: the signing request is malformed or its key is not acceptable.
	ErrCSR = errors.New("the certificate signing request cannot be used")
	// ErrCSRSubject: the signing request asks for another's name, or for a group.
	ErrCSRSubject = errors.New("the certificate signing request asks for a subject that is not the peer's own")
	// ErrIssuer: the issuer cannot work; the request is fine.
	ErrIssuer = errors.New("the issuer cannot issue")
)

// Issuance is an identity that was issued: a certificate or a token.
type Issuance struct {
	CertificatePEM []byte
	Token          Token
	// Serial is a certificate's, in hexadecimal, or the id of a token.
	Serial   string
	NotAfter time.Time
	// Again: it was issued before, for the same request.
	Again bool
}

// Issuer makes identities for the API server. The issuing side alone decides who the
// peer is (see [Subject]). A request may be repeated: the same peer gets the same certificate for a
// while, or another token. Errors are an [ErrCSR], an [ErrCSRSubject] or an [ErrIssuer].
type Issuer interface {
	// Tokens reports whether it issues tokens, and has no use for a signing request.
	Tokens() bool
	// User is the name that the API server knows the subject by.
	User(s Subject) string
	Issue(ctx context.Context, s Subject, csrPEM []byte) (Issuance, error)
	// Revoke forgets the peer, does not wait, and tells what it can still use.
	Revoke(s Subject) Revocation
}

// Revocation is what a removed peer is left with.
type Revocation struct {
	// Outstanding counts the identities that stay valid until they expire, the last of
	// them at NotAfter.
	Outstanding int
	NotAfter    time.Time
	// Recalled: tokens are called back. The issuer tries until the API server has heard
	// of it, and from then on they end within [RecallTime].
	Recalled bool
}

// RecallTime is how long an API server may take a token whose account is gone: it
// remembers for 10 s that a token was good (kube-apiserver's token cache), and hears of
// the deletion from its own store a moment later.
const RecallTime = 15 * time.Second

const (
	minRSABits = 2048
	maxRSABits = 8192 // verifying takes time that grows with the square
)

// parseCSR reads a signing request and checks everything but whose it is.
func parseCSR(b []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("%w: not PEM of type CERTIFICATE REQUEST", ErrCSR)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, fmt.Errorf("%w: more than one PEM block", ErrCSR)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCSR, err)
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: it is not signed by its own key: %w", ErrCSR, err)
	}
	return csr, nil
}

func checkKey(key any) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return nil
		}
		return fmt.Errorf("%w: curve %s (want P-256 or P-384)", ErrCSR, k.Curve.Params().Name)
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSABits || n > maxRSABits {
			return fmt.Errorf("%w: an RSA key of %d bits (want %d to %d)", ErrCSR, n, minRSABits, maxRSABits)
		}
		return nil
	}
	return fmt.Errorf("%w: a key of type %T (want ECDSA, Ed25519 or RSA)", ErrCSR, key)
}

var (
	oidCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
)

// checkSubject refuses a request for a group or for another user. What it asks for
// has no influence on the certificate, but whoever asks should not go unnoticed.
func checkSubject(csr *x509.CertificateRequest, user string) error {
	for _, attr := range csr.Subject.Names {
		text, isText := attr.Value.(string)
		switch {
		case attr.Type.Equal(oidOrganization):
			return fmt.Errorf("%w: the group %.60q", ErrCSRSubject, clean(text, 60))
		case attr.Type.Equal(oidCommonName) && (!isText || text != "" && text != user):
			return fmt.Errorf("%w: the user %.60q, not %q", ErrCSRSubject, clean(text, 60), user)
		}
	}
	return nil
}
