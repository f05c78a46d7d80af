package auth

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/bounded"
)

const (
	// maxToken bounds a token, in bytes: Kubernetes' have about 1 KB, and servers accept 8 to 16 KB
	// of headers.
	maxToken = 8 << 10
	// tokenPEMType and the headers are the storage format of a token.
	tokenPEMType    = "BEARER TOKEN"
	headerNotBefore = "Not-Before"
	headerNotAfter  = "Not-After"
)

// Token is a bearer token (RFC 6750). It hides its value: printing, logging or encoding one only
// shows that it exists.
type Token string

// String hides the token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return "(token)"
}

// GoString hides it from %#v.
func (t Token) GoString() string { return t.String() }

// LogValue hides it from log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText hides it from every encoder.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ID returns the token's id, if it is a JSON Web Token with one (RFC 7519 §4.1.7). It is not
// secret.
func (t Token) ID() string { return claimName(t.claims().ID) }

// claimForm matches names in Kubernetes' tokens: users, and UUIDs.
var claimForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.:_-]{0,255}$`)

// claimName returns a claim that is a valid name, else nothing: a stranger may have made the token.
func claimName(s string) string {
	if !claimForm.MatchString(s) {
		return ""
	}
	return s
}

// tokenClaims are the claims of a JSON Web Token (RFC 7519 §4.1) that are read here.
type tokenClaims struct {
	Subject  string  `json:"sub" max:"256"`
	ID       string  `json:"jti" max:"256"`
	Expires  float64 `json:"exp" max:"274877906943"` // seconds since 1970, NumericDate (§2), to the year 10680
	IssuedAt float64 `json:"iat" max:"274877906943"`
}

// claims returns the token's claims; zero if it is no JSON Web Token. Nothing is verified: only the
// API server can.
func (t Token) claims() tokenClaims {
	var c tokenClaims
	parts := strings.Split(string(t), ".")
	if len(parts) != 3 {
		return tokenClaims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || bounded.Unmarshal(payload, maxToken, &c) != nil {
		return tokenClaims{}
	}
	return c
}

// numericDate returns a claim's time; zero if there is none, or an impossible one.
func numericDate(seconds float64) time.Time {
	if !(seconds > 0 && seconds < 1<<38) {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// checkToken requires what RFC 6750 §2.1 allows in a header: the issuer is another gateway, which
// may be broken or malicious.
func checkToken(t Token) error {
	if len(t) > maxToken {
		return fmt.Errorf("%w: a token of %d bytes, and at most %d are taken", ErrAnswer, len(t), maxToken)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"
	if body := strings.TrimRight(string(t), "="); body == "" || strings.Trim(body, alphabet) != "" {
		return fmt.Errorf("%w: the token has characters that no token has", ErrAnswer)
	}
	return nil
}

// newTokenIdentity makes an identity from a token. Its expiry is the token's own or, without one,
// the issuer's; its start is the token's own or now.
func newTokenIdentity(t Token, notAfter, now time.Time) (Identity, error) {
	if err := checkToken(t); err != nil {
		return Identity{}, err
	}
	c := t.claims()
	id := Identity{Token: t, User: claimName(c.Subject), NotBefore: numericDate(c.IssuedAt), NotAfter: numericDate(c.Expires)}
	if id.NotAfter.IsZero() {
		id.NotAfter = notAfter
	}
	if id.NotBefore.IsZero() {
		id.NotBefore = now
	}
	id.NotBefore, id.NotAfter = id.NotBefore.UTC().Truncate(time.Second), id.NotAfter.UTC().Truncate(time.Second)
	switch life := id.NotAfter.Sub(id.NotBefore); {
	case id.NotAfter.IsZero():
		return Identity{}, fmt.Errorf("%w: nobody says when the token ends", ErrAnswer)
	case life <= 0:
		return Identity{}, fmt.Errorf("%w: the token is never valid", ErrAnswer)
	}
	return id, nil
}

// identity checks what a gateway granted and returns it. keyPEM is the signing request's key.
func (g Grant) identity(keyPEM []byte, now time.Time) (Identity, error) {
	if g.Token == "" {
		return newIdentity(g.CertificatePEM, keyPEM)
	}
	if len(g.CertificatePEM) > 0 {
		return Identity{}, fmt.Errorf("%w: a certificate and a token", ErrAnswer)
	}
	return newTokenIdentity(g.Token, g.NotAfter, now)
}

// TokenPEM is the storage format of an identity's token: PEM, in place of a private key, with its
// times, which not every token contains.
func (i Identity) TokenPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{
		Type: tokenPEMType, Bytes: []byte(i.Token),
		Headers: map[string]string{
			headerNotBefore: i.NotBefore.UTC().Format(time.RFC3339), headerNotAfter: i.NotAfter.UTC().Format(time.RFC3339),
		},
	})
}

// storedSecret returns what a store keeps as the identity's key.
func (i Identity) storedSecret() []byte {
	if i.Token != "" {
		return i.TokenPEM()
	}
	return i.KeyPEM
}

// storedIdentity parses what a store kept.
func storedIdentity(certPEM, secretPEM []byte) (Identity, error) {
	block, _ := pem.Decode(secretPEM)
	if block == nil || block.Type != tokenPEMType {
		return newIdentity(certPEM, secretPEM)
	}
	notBefore, errBefore := time.Parse(time.RFC3339, block.Headers[headerNotBefore])
	notAfter, errAfter := time.Parse(time.RFC3339, block.Headers[headerNotAfter])
	if err := errors.Join(errBefore, errAfter); err != nil {
		return Identity{}, fmt.Errorf("%w: the stored token's times: %w", ErrAnswer, err)
	}
	return newTokenIdentity(Token(block.Bytes), notAfter, notBefore)
}
