package ticket

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
)

const (
	major = 1

	kindTicket = 1
	kindReply  = 2

	// The minor versions: a reply has a proof since its first.
	minorTicket = 0
	minorReply  = 1

	headerSize   = 4
	checksumSize = 4
	// maxText bounds a text: the largest that Encode makes has some 4,000 characters, plus pasted
	// white space.
	maxText = 16 << 10
)

// digits is the text's base32 alphabet, in lower case (RFC 4648 §6).
const digits = "abcdefghijklmnopqrstuvwxyz234567"

var encoding = base32.NewEncoding(digits).WithPadding(base32.NoPadding)

// seal wraps a body in header, checksum and base32.
func seal(kind byte, body []byte) (string, error) {
	b, err := header(minorTicket, kind, len(body))
	if err != nil {
		return "", err
	}
	b = append(b, body...)
	return armour(b), nil
}

// header returns the start of a frame whose body has n bytes.
func header(minor, kind byte, n int) ([]byte, error) {
	total := headerSize + n + checksumSize
	if total > 0xffff {
		return nil, fmt.Errorf("a ticket of %d bytes is too long", total)
	}
	b := make([]byte, 0, total)
	b = append(b, major<<4|minor, kind)
	return binary.BigEndian.AppendUint16(b, uint16(total)), nil
}

func armour(b []byte) string {
	sum := sha256.Sum256(b)
	return Prefix + encoding.EncodeToString(append(b, sum[:checksumSize]...))
}

// frame is an opened text. covered is header and body, which a reply's mac covers.
type frame struct {
	minor   byte
	kind    byte
	covered []byte
}

func (f frame) body() []byte { return f.covered[headerSize:] }

// open undoes seal. Completeness is checked before the version, since neither the header nor the
// checksum depends on that.
func open(text string) (frame, error) {
	if len(text) > maxText {
		return frame{}, fmt.Errorf("%w: %d characters are too many", ErrNotTicket, len(text))
	}
	text = strings.Join(strings.Fields(Find(text)), "")
	rest, err := trimPrefix(strings.ToLower(text))
	if err != nil {
		return frame{}, err
	}
	if i := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune(digits, r) }); i >= 0 {
		return frame{}, fmt.Errorf("%w (character %d cannot occur)", ErrDamaged, len(Prefix)+i+1)
	}
	// Base32 of whole bytes has 0, 2, 4, 5 or 7 extra characters; the rest of a cut one is enough
	// to read the length.
	even := rest[:len(rest)-dangling(len(rest))]
	b, err := encoding.DecodeString(even)
	if err != nil {
		return frame{}, fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	if len(b) < headerSize+checksumSize {
		return frame{}, ErrTruncated
	}
	switch total := int(binary.BigEndian.Uint16(b[2:])); {
	case len(b) < total:
		return frame{}, ErrTruncated
	case len(b) > total || len(even) != len(rest) || encoding.EncodeToString(b) != rest:
		return frame{}, ErrDamaged
	}
	covered, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	if want := sha256.Sum256(covered); !bytes.Equal(sum, want[:checksumSize]) {
		return frame{}, ErrDamaged
	}
	if got := covered[0] >> 4; got != major {
		return frame{}, fmt.Errorf("%w (its format is version %d, this one reads %d)", ErrNewerVersion, got, major)
	}
	return frame{minor: covered[0] & 15, kind: covered[1], covered: covered}, nil
}

// trimPrefix removes Prefix, or says what else the text may be.
func trimPrefix(text string) (string, error) {
	if rest, ok := strings.CutPrefix(text, Prefix); ok {
		return rest, nil
	}
	const name = "postern"
	switch {
	case text != "" && strings.HasPrefix(Prefix, text):
		return "", ErrTruncated
	case len(text) > len(name) && strings.HasPrefix(text, name) && text[len(name)] >= '2' && text[len(name)] <= '9':
		return "", fmt.Errorf("%w (it begins with %q)", ErrNewerVersion, text[:len(Prefix)])
	}
	return "", ErrNotTicket
}

// dangling returns how many characters at the end of n base32 digits encode no whole byte.
func dangling(n int) int {
	switch n % 8 {
	case 1, 3, 6:
		return 1
	}
	return 0
}
