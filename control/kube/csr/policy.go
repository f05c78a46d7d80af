package csr

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
)

// What a policy can know of a request. CEL sees spec.request as JSON has it: PEM in base64.
// A request for an ECDSA P-256 key without attributes begins
//
//	30 81 xx                CertificationRequest, always of 128 to 255 bytes
//	30 LL  or  30 81 LL     CertificationRequestInfo, LL = 109 + n
//	02 01 00                version
//	30 11+n  31 9+n  30 7+n  06 03 55 04 03  13 n   one name of one part, the common name
//	"postern:peer:" NAME    n bytes
//
// (RFC 2986 §4.1, RFC 5280 §4.1.2.4, X.690). Lengths that fit each other leave no room for a
// second part of the name, so a group cannot hide behind it. Only xx is not known, for
// signatures differ in length. Of the first 33 bytes the text in PEM is whole groups, as the
// header before them is; with what is known of the bytes after them the prefix is checked to
// the last bit.
//
// A reader of PEM could still be led past such a beginning: by a colon, which makes a line a
// header (RFC 1421 §4.6), and by a hyphen, with which a second block begins. So between the
// header and the last 36 bytes, where only the end of the block has room, there is neither.
const (
	pemHeader = "-----BEGIN CERTIFICATE REQUEST-----\n"
	// pemEdge is the length in base64 of 36 bytes: of the header, and of at most the last 36.
	pemEdge = 48

	base64Chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	// nameFirst are the characters with which a peer's name can begin.
	nameFirst = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// requestPattern is a regular expression (RE2) for spec.request in base64: that it begins as
// the request of a peer.
func requestPattern() string {
	var b strings.Builder
	b.WriteString("^" + base64.StdEncoding.EncodeToString([]byte(pemHeader)))
	// 30 81 xx with 0x80 <= xx is "MIG" or "MIH", and any character.
	b.WriteString("(")
	for i, head := range []string{"MIG", "MIH"} {
		if i > 0 {
			b.WriteByte('|')
		}
		b.WriteString(base64.StdEncoding.EncodeToString([]byte(head)))
	}
	b.WriteString(")")
	// The character that xx makes, and the first two of what follows, are a group: its first
	// two characters depend on xx, the others do not.
	b.WriteString("(" + strings.Join(startsOfGroups(base64Chars, secondGroup(1)[0]), "|") + ")")
	b.WriteString("(")
	for n := 1; n <= api.MaxNameLength; n++ {
		if n > 1 {
			b.WriteByte('|')
		}
		b.WriteString(afterLength(n))
	}
	b.WriteString(")")
	return b.String()
}

// afterLengthOfRequest is what follows 30 81 xx, up to and with the prefix of users, for a
// peer's name of some length.
func afterLengthOfRequest(nameLength int) []byte {
	n := len(auth.UserPrefix) + nameLength
	out := []byte{0x30}
	if info := 109 + n; info < 0x80 {
		out = append(out, byte(info))
	} else {
		out = append(out, 0x81, byte(info))
	}
	out = append(out, 0x02, 0x01, 0x00, 0x30, byte(11+n), 0x31, byte(9+n), 0x30, byte(7+n), 0x06, 0x03, 0x55, 0x04, 0x03, 0x13, byte(n))
	return append(out, auth.UserPrefix...)
}

// secondGroup is the text in PEM of the three bytes after 30 81 xx.
func secondGroup(nameLength int) string {
	return base64.StdEncoding.EncodeToString(afterLengthOfRequest(nameLength)[:3])
}

// startsOfGroups are the first two characters in base64 of a byte of a set and a known one.
func startsOfGroups(set string, second byte) []string {
	var out []string
	for i := range len(set) {
		out = append(out, regexp.QuoteMeta(base64.StdEncoding.EncodeToString([]byte{set[i], second, 0})[:2]))
	}
	return out
}

// afterLength is the pattern of what follows the two characters that xx has a part in.
func afterLength(nameLength int) string {
	der := afterLengthOfRequest(nameLength)
	whole := len(der) / 3 * 3
	text := base64.StdEncoding.EncodeToString(der[:whole])
	// The rest of the prefix, one or two bytes, shares a group with the name's first
	// characters.
	rest := der[whole:]
	tails := map[string]bool{}
	var order []string
	for i := range len(nameFirst) {
		group := append(append([]byte(nil), rest...), nameFirst[i], nameFirst[i])[:3]
		// of the group the characters that only the rest and the first character decide
		known := (len(rest)*8 + 4) / 6
		tail := base64.StdEncoding.EncodeToString(group)[:known]
		if !tails[tail] {
			tails[tail] = true
			order = append(order, tail)
		}
	}
	var out []string
	for _, tail := range order {
		line := text[2:] + tail // text[:2] is in the group of xx
		before := text[:2]
		full := []byte("x" + before + line) // aligned: x stands for the character of xx
		whole := len(full) / 3 * 3
		encoded := base64.StdEncoding.EncodeToString(full[:whole])[2:]
		out = append(out, regexp.QuoteMeta(encoded)+partial(full[whole:]))
	}
	if len(out) == 1 {
		return out[0]
	}
	return "(" + strings.Join(out, "|") + ")"
}

// partial is the pattern of a group of which only the first one or two bytes are known.
func partial(known []byte) string {
	if len(known) == 0 {
		return ""
	}
	group := base64.StdEncoding.EncodeToString(append(append([]byte(nil), known...), 0, 0)[:3])
	sure := len(known) * 8 / 6
	// The next character has the last bits of what is known, and any others.
	bits := len(known)*8 - sure*6
	first := strings.IndexByte(base64Chars, group[sure])
	return regexp.QuoteMeta(group[:sure]) + "[" + regexp.QuoteMeta(base64Chars[first:first+1<<(6-bits)]) + "]"
}

// oddPattern is a regular expression for base64 in which some byte is a colon or a hyphen.
func oddPattern() string {
	var out []string
	for _, c := range []byte(":-") {
		hi, lo := c>>2, c&3
		out = append(out,
			string(base64Chars[hi])+"["+base64Chars[lo<<4:lo<<4+16]+"]..",
			"."+stride(c>>4, 16)+"["+base64Chars[c&15<<2:c&15<<2+4]+"].",
			".."+stride(c>>6, 4)+string(base64Chars[c&63]))
	}
	return "^(....)*(" + strings.Join(out, "|") + ")"
}

// stride is a class of the characters whose value has these lowest bits.
func stride(low byte, step int) string {
	var b strings.Builder
	for v := int(low); v < len(base64Chars); v += step {
		b.WriteByte(base64Chars[v])
	}
	return "[" + b.String() + "]"
}

// expressions are how the policy says both, in CEL.
func expressions() (begins, even string) {
	return fmt.Sprintf("variables.request.matches(r'%s')", requestPattern()),
		fmt.Sprintf("size(variables.request) > %d && !variables.request.substring(%d, size(variables.request) - %d).matches(r'%s')", 2*pemEdge, pemEdge, pemEdge, oddPattern())
}
