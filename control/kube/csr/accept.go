package csr

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/auth"
)

var (
	// errTooOld: the certificate is from an earlier request, and most of its lifetime is over.
	errTooOld = errors.New("the certificate is too old")
	// errSigner: the signer signed something other than requested.
	errSigner = errors.New("the signer signed something else")
)

// slack is how much longer than MaxTTL a certificate may be valid: to allow for clock differences,
// signers let it begin earlier.
const slack = 15 * time.Minute

// accept checks the signer's certificate before it is handed out.
func accept(certPEM []byte, user string, request *x509.CertificateRequest, now time.Time) (auth.Issuance, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return auth.Issuance{}, fmt.Errorf("%w: no certificate", errSigner)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return auth.Issuance{}, fmt.Errorf("%w: %w", errSigner, err)
	case !bytes.Equal(c.RawSubjectPublicKeyInfo, request.RawSubjectPublicKeyInfo):
		return auth.Issuance{}, fmt.Errorf("%w: a certificate for another key", errSigner)
	case len(c.Subject.Names) != 1 || c.Subject.CommonName != user:
		return auth.Issuance{}, fmt.Errorf("%w: a certificate for %.80q, not for %q alone", errSigner, c.Subject.String(), user)
	case c.IsCA || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || len(c.UnknownExtKeyUsage) > 0:
		return auth.Issuance{}, fmt.Errorf("%w: a certificate for more than client authentication", errSigner)
	}
	life := c.NotAfter.Sub(c.NotBefore)
	if life <= 0 || life > MaxTTL+slack {
		return auth.Issuance{}, fmt.Errorf("%w: a certificate for %s, longer than %s", errSigner, life, MaxTTL)
	}
	if c.NotAfter.Sub(now) < life/2 {
		return auth.Issuance{}, errTooOld
	}
	return auth.Issuance{
		CertificatePEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}),
		Serial:         c.SerialNumber.Text(16), NotAfter: c.NotAfter,
	}, nil
}
