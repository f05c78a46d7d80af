package check

import "log/slog"

// Token is a bearer token. It shows itself to nobody: whatever prints or logs one writes
// that there is one.
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
