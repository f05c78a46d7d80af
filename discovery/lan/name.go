package lan

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Names are in the presentation form that the dns package uses for parsed messages, so that they
// can be compared: see escaped.
const (
	serviceName     = "_postern._udp.local."
	enumerationName = "_services._dns-sd._udp.local." // RFC 6763 §9
	localDomain     = "local."
	// maxLabel is the longest label in bytes (RFC 1035 §2.3.4).
	maxLabel = 63
)

// escaped escapes a label as the dns package does (RFC 1035 §5.1): special characters with a
// backslash, others that are not printable ASCII as \DDD.
func escaped(label string) string {
	var b strings.Builder
	for i := range len(label) {
		switch c := label[i]; {
		case strings.IndexByte(`. '@;()"\`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// instanceName returns the full name of an instance of the service.
func instanceName(label string) string { return escaped(label) + "." + serviceName }

// instanceLabel returns the label of an instance's full name; false if the name is not an
// instance's.
func instanceLabel(name string) (label string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '.' {
			return b.String(), i > 0 && strings.EqualFold(name[i+1:], serviceName)
		}
		if c == '\\' {
			i++
			if i == len(name) {
				return "", false
			}
			c = name[i]
			if c >= '0' && c <= '9' {
				if i+3 > len(name) {
					return "", false
				}
				var n int
				if _, err := fmt.Sscanf(name[i:i+3], "%03d", &n); err != nil || n > 255 {
					return "", false
				}
				c, i = byte(n), i+2
			}
		}
		b.WriteByte(c)
	}
	return "", false
}

// numbered returns a label with a number, for when the plain one is taken: "edge (2)" (RFC 6763
// §D). It is at most as long as a label may be, and valid UTF-8.
func numbered(label string, n int) string {
	if n < 2 {
		return label
	}
	suffix := fmt.Sprintf(" (%d)", n)
	label = label[:min(len(label), maxLabel-len(suffix))]
	for label != "" && !utf8.ValidString(label) {
		label = label[:len(label)-1]
	}
	return label + suffix
}

// fold returns a name in the form in which names are compared, without the case of ASCII letters
// (RFC 6762 §16).
func fold(name string) string { return strings.ToLower(name) }
