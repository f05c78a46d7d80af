package auth

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// MaxDirectTTL bounds the lifetime of a token that identifies a peer outside the tunnel,
	// DefaultDirectTTL is the default, MinDirectTTL the minimum.
	MaxDirectTTL     = 366 * 24 * time.Hour
	DefaultDirectTTL = 90 * 24 * time.Hour
	MinDirectTTL     = time.Minute

	// directLabel separates this use of the gateway's key from others (HKDF's info).
	directLabel = "postern out-of-band auth v1"
	// directAudience is the token's aud: it is valid for auth, and for no API server.
	directAudience = "postern-auth"
	// directHeader is the only accepted header, so that nobody can choose an algorithm (RFC 8725
	// §3.1): {"alg":"HS256","typ":"JWT"}.
	directHeader = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
	// directLeeway allows for this host's clock having been set back since.
	directLeeway = time.Minute
	// directGrain is the resolution of a token's times: a token from the second in which the peer
	// was added looks older than the peer.
	directGrain = time.Second
)

// errDirectToken: a token is invalid. The reason is only logged.
var errDirectToken = errors.New("the token is invalid")

// DirectTokens issues and checks the tokens that identify peers outside the tunnel, where no
// overlay address does. A token is a JSON Web Token (RFC 7519, HS256) that names a peer's key; it
// is not stored. The signing key is derived from the gateway's own, so a token becomes invalid with
// that key, with the peer, with the peer's key, and when it expires. A peer that was removed and
// added again with the same key cannot use old tokens: they are older than it (Caller.NotBefore).
// It is safe for concurrent use.
type DirectTokens struct{ key []byte }

// NewDirectTokens derives the key.
func NewDirectTokens(own peer.PrivateKey) (*DirectTokens, error) {
	key, err := hkdf.Key(sha256.New, []byte(own.Base64()), nil, directLabel, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the key of tokens: %w", err)
	}
	return &DirectTokens{key: key}, nil
}

// directClaims are a token's claims.
type directClaims struct {
	Audience string `json:"aud"`
	Subject  string `json:"sub"` // the peer's public key, in base64
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// Make issues a token for the peer with a key, valid from now on.
func (d *DirectTokens) Make(k peer.PublicKey, now time.Time, ttl time.Duration) (Token, time.Time, error) {
	if ttl < MinDirectTTL || ttl > MaxDirectTTL {
		return "", time.Time{}, fmt.Errorf("a token of %s: want %s to %s", ttl, MinDirectTTL, MaxDirectTTL)
	}
	end := now.Add(ttl).Truncate(time.Second)
	claims, err := json.Marshal(directClaims{Audience: directAudience, Subject: k.String(), IssuedAt: now.Unix(), Expires: end.Unix()})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("make a token: %w", err)
	}
	text := directHeader + "." + base64.RawURLEncoding.EncodeToString(claims)
	return Token(text + "." + base64.RawURLEncoding.EncodeToString(d.sum(text))), end, nil
}

func (d *DirectTokens) sum(text string) []byte {
	h := hmac.New(sha256.New, d.key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// direct is the content of a valid token.
type direct struct {
	key    peer.PublicKey
	issued time.Time
}

// precedes reports whether the token was issued before the peer was added; never for the zero time.
func (d direct) precedes(notBefore time.Time) bool {
	return !notBefore.IsZero() && d.issued.Before(notBefore.Add(-directGrain))
}

// check returns the key of the peer that a token was issued for, and when. Nothing in the token is
// read before its signature is verified, in constant time.
func (d *DirectTokens) check(t Token, now time.Time) (direct, error) {
	if len(t) > maxToken {
		return direct{}, fmt.Errorf("%w: it is too long", errDirectToken)
	}
	at := strings.LastIndexByte(string(t), '.')
	if at < 0 {
		return direct{}, fmt.Errorf("%w: not a token of this gateway", errDirectToken)
	}
	text := string(t[:at])
	// Compare the signature's text: another text can decode to the same bytes.
	if !hmac.Equal([]byte(t[at+1:]), []byte(base64.RawURLEncoding.EncodeToString(d.sum(text)))) {
		return direct{}, fmt.Errorf("%w: not signed by this gateway's present key", errDirectToken)
	}
	header, payload, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	var c directClaims
	if err != nil || header != directHeader || json.Unmarshal(raw, &c) != nil || c.Audience != directAudience {
		return direct{}, fmt.Errorf("%w: not a token for auth", errDirectToken)
	}
	switch {
	case now.Before(time.Unix(c.IssuedAt, 0).Add(-directLeeway)):
		return direct{}, fmt.Errorf("%w: it was issued in the future", errDirectToken)
	case !now.Before(time.Unix(c.Expires, 0)):
		return direct{}, fmt.Errorf("%w: it expired at %s", errDirectToken, time.Unix(c.Expires, 0).UTC().Format(time.RFC3339))
	}
	k, err := peer.ParsePublicKey(c.Subject)
	if err != nil {
		return direct{}, fmt.Errorf("%w: it names no peer", errDirectToken)
	}
	return direct{key: k, issued: time.Unix(c.IssuedAt, 0)}, nil
}
