package main

import (
	"regexp"
	"strings"
)

// hidden takes the place of what looks like a secret.
const hidden = "(hidden)"

// What secrets look like. Nothing that the gateway tells of itself contains one; this is
// the second lock on the same door, for texts of libraries and of other programs.
var (
	pemSecret  = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	ticketText = regexp.MustCompile(`postern1[0-9A-Za-z_-]{8,}`)
	// webToken is a JSON Web Token (RFC 7519): a ServiceAccount's token.
	webToken = regexp.MustCompile(`eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]+\.[0-9A-Za-z_-]*`)
	// bearerText and passwordText are named as such.
	bearerText   = regexp.MustCompile(`(?i)\b(bearer|basic) [0-9A-Za-z+/=._~-]{8,}`)
	passwordText = regexp.MustCompile(`(?i)\b(password|secret|token)(["']?\s*[=:]\s*["']?)([^\s"',}]+)`)
	// keyText is 32 bytes in Base64, as WireGuard writes keys of every kind.
	keyText = regexp.MustCompile(`[0-9A-Za-z+/]{43}=`)
)

// redact hides what looks like a secret. Keys in known are public and stay.
func redact(text []byte, known map[string]bool) []byte {
	s := string(text)
	s = pemSecret.ReplaceAllString(s, hidden)
	s = ticketText.ReplaceAllString(s, "postern1"+hidden)
	s = webToken.ReplaceAllString(s, hidden)
	s = bearerText.ReplaceAllString(s, "$1 "+hidden)
	s = passwordText.ReplaceAllString(s, "$1$2"+hidden)
	s = keyText.ReplaceAllStringFunc(s, func(k string) string {
		if known[k] {
			return k
		}
		return hidden
	})
	return []byte(strings.ToValidUTF8(s, "?"))
}
