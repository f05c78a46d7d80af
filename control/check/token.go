package check

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"time"
)

// Token is a bearer token. It hides its value: printing or logging one only shows that it exists.
type Token string

const redacted = "(token)"

// String hides the token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return redacted
}

// GoString hides it from %#v.
func (t Token) GoString() string { return t.String() }

// LogValue hides it from log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText hides it from every encoder.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// expires is when a token that is a JSON Web Token (RFC 7519 §4.1.4), like Kubernetes', expires;
// zero for others. Nothing is verified: it only explains a rejection.
func (t Token) expires() time.Time {
	parts := strings.Split(string(t), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var c struct {
		Exp int64 `json:"exp"`
	}
	if json.Unmarshal(claims, &c) != nil || c.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(c.Exp, 0)
}
