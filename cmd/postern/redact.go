package main

import (
	"regexp"
	"strings"

	"github.com/postern-dev/postern/control/ticket"
)

// hidden replaces what looks like a secret.
const hidden = "(hidden)"

// Forms of secrets. The gateway's own reports contain none. This is a second line of defence, for
// texts of libraries and other programs.
var (
	pemSecret = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// ticketText is a ticket or a reply, in upper case if it comes from a QR code.
	ticketText = regexp.MustCompile(`(?i)postern1[0-9a-z_-]{8,}`)
	// webToken is a JSON Web Token (RFC 7519): a ServiceAccount's token.
	webToken = regexp.MustCompile(`eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]+\.[0-9A-Za-z_-]*`)
	// bearerText and passwordText match secrets with a label.
	bearerText   = regexp.MustCompile(`(?i)\b(bearer|basic) [0-9A-Za-z+/=._~-]+`)
	passwordText = regexp.MustCompile(`(?i)\b(password|passwd|secret|token|client-key-data|clientKey)(\\?["']?\s*[=:]\s*)("[^"]*"|'[^']*'|\\"[^"]*\\"|[^\s"',}]+)`)
	// pemBase64 is a PEM text in Base64, the format of keys in kubeconfigs. It also matches
	// certificates, which are not needed.
	pemBase64 = regexp.MustCompile(`LS0tLS1CRUdJTi[0-9A-Za-z+/=]*`)
	// userinfo is the name and password in a URL, or a token in their place (RFC 3986 §3.2.1). A
	// password may contain what should be escaped: then a parser's error has the whole URL. So with a
	// colon it goes as far as the last @.
	userinfo = regexp.MustCompile(`(://)(?:[^\s"'/]*:[^\s"']*|[^\s"'/]*)@`)
	// bootstrap is a token with which nodes join a cluster.
	bootstrap = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
	// hexKey is 32 bytes in hexadecimal, the format of keys in WireGuard's configuration
	// protocol.
	hexKey = regexp.MustCompile(`\b[0-9a-fA-F]{64}\b`)
	// keyText is 32 bytes in Base64, the format of all WireGuard keys.
	keyText = regexp.MustCompile(`[0-9A-Za-z+/]{43}=`)
)

// redact hides what looks like a secret. Keys in known are public and are kept.
func redact(text []byte, known map[string]bool) []byte {
	s := string(text)
	s = pemSecret.ReplaceAllString(s, hidden)
	s = ticketText.ReplaceAllString(s, ticket.Prefix+hidden)
	s = webToken.ReplaceAllString(s, hidden)
	s = bearerText.ReplaceAllString(s, "$1 "+hidden)
	s = userinfo.ReplaceAllString(s, "$1"+hidden+"@")
	s = passwordText.ReplaceAllString(s, "$1$2"+hidden)
	s = pemBase64.ReplaceAllString(s, hidden)
	s = bootstrap.ReplaceAllString(s, hidden)
	s = hexKey.ReplaceAllString(s, hidden)
	s = keyText.ReplaceAllStringFunc(s, func(k string) string {
		if known[k] {
			return k
		}
		return hidden
	})
	return []byte(strings.ToValidUTF8(s, "?"))
}
