package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
)

// RequestIssuer is an [Issuer] that passes signing requests to an authority which signs them
// unchanged, including the subject. The issuer still determines the subject: it tells a peer
// which user to request, and refuses any other.
type RequestIssuer interface {
	Issuer
	// Verbatim marks such an issuer. A peer has to request what User returns.
	Verbatim()
}

// ExactRequest parses a signing request that may be passed on: its subject is only the user, it
// requests no extensions, and its key is ECDSA P-256, as peers use. Its error is an [ErrCSR] or
// an [ErrCSRSubject].
func ExactRequest(csrPEM []byte, user string) (*x509.CertificateRequest, error) {
	csr, err := parseCSR(csrPEM)
	if err != nil {
		return nil, err
	}
	if err := checkSubject(csr, user); err != nil {
		return nil, err
	}
	if n := csr.Subject.Names; len(n) != 1 || csr.Subject.CommonName != user {
		return nil, fmt.Errorf("%w: its subject must be the user %q and nothing else", ErrCSR, user)
	}
	if len(csr.Extensions) > 0 {
		return nil, fmt.Errorf("%w: it asks for extensions, and the certificate gets none", ErrCSR)
	}
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: its key is not of ECDSA P-256, as those of peers are", ErrCSR)
	}
	return csr, nil
}

// userWanted returns the user that a peer has to request, if its request has no user yet and the
// issuer does not set the subject itself.
func userWanted(i Issuer, s Subject, csrPEM []byte) string {
	r, ok := i.(RequestIssuer)
	if !ok {
		return ""
	}
	csr, err := parseCSR(csrPEM)
	if err != nil || len(csr.Subject.Names) > 0 {
		return "" // the issuer will report what is wrong
	}
	return r.User(s)
}
