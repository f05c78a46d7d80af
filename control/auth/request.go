package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
)

// RequestIssuer is an [Issuer] that hands signing requests on to an authority that signs
// them as they are, subject included. It decides the subject anyway: a peer is told
// which user to ask for, and a request for anything else is refused.
type RequestIssuer interface {
	Issuer
	// Verbatim marks it. A peer has to ask for what User gives.
	Verbatim()
}

// ExactRequest reads a signing request that may be handed on: its subject is the user
// and nothing else, it asks for no extension, and its key is of ECDSA P-256, which is what
// peers make. Its error is an [ErrCSR] or an [ErrCSRSubject].
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

// userWanted is whom a peer has to ask for, if its request asks for nobody yet and the
// issuer does not write subjects itself.
func userWanted(i Issuer, s Subject, csrPEM []byte) string {
	r, ok := i.(RequestIssuer)
	if !ok {
		return ""
	}
	csr, err := parseCSR(csrPEM)
	if err != nil || len(csr.Subject.Names) > 0 {
		return "" // the issuer says what is wrong with it
	}
	return r.User(s)
}
