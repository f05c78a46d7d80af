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

// Issuance is an issued identity: a certificate or a token.
type Issuance struct {
	CertificatePEM []byte
	Token          Token
	// Serial is a certificate's, in hexadecimal, or the id of a token.
	Serial   string
	NotAfter time.Time
	// Again: it was already issued for the same request.
	Again bool
}

// Issuer issues identities for the API server. Only the issuing side decides who the peer is (see
// [Subject]). A request may be repeated: for a while the same peer gets the same certificate, or a
// new token. Errors are an [ErrCSR], an [ErrCSRSubject] or an [ErrIssuer].
type Issuer interface {
	// Tokens reports whether it issues tokens, and ignores signing requests.
	Tokens() bool
	// User returns the subject's user name at the API server.
	User(s Subject) string
	Issue(ctx context.Context, s Subject, csrPEM []byte) (Issuance, error)
	// Revoke forgets the peer, without waiting, and returns what the peer can still use.
	Revoke(s Subject) Revocation
}

// Revocation is what a removed peer can still use.
type Revocation struct {
	// Outstanding counts the identities that stay valid until they expire, the last of them at
	// NotAfter.
	Outstanding int
	NotAfter    time.Time
	// Recalled: tokens are revoked. The issuer retries until the API server knows, and from then on
	// they end within [RecallTime].
	Recalled bool
}

// RecallTime is how long an API server may accept a token whose account is gone: it caches valid
// tokens for 10 s (kube-apiserver's token cache), and learns of the deletion a moment later.
const RecallTime = 15 * time.Second

const (
	minRSABits = 2048
	maxRSABits = 8192 // verifying takes time that grows with the square
)

// parseCSR parses a signing request and checks everything except whose it is.
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

// checkSubject rejects a request for a group or for another user. The requested subject has no
// influence on the certificate, but the attempt should be noticed.
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
