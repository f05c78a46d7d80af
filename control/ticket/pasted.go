package ticket

import (
	"encoding/binary"
	"strings"
	"unicode"
)

// decoration is what surrounds and separates the parts of a pasted ticket: quotes, brackets, mail
// quoting, line and sentence ends.
const decoration = "'\"`´‘’‚‛“”„‟«»‹›「」<>()[]{}|*_=\\,.;:!?"

// invisible are characters without a width, at which mail and chat programs also break lines: soft
// hyphens, joiners, marks of direction and of byte order.
const invisible = "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufeff"

// Find returns the ticket or reply in a pasted text: by itself or in a command, in quotes, broken
// into lines, with words before and after it. If there are several it is the last; a text without
// any is returned unchanged. [Decode] checks the result.
func Find(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(invisible, r) })
	for i := len(words) - 1; i >= 0; i-- {
		word := strings.ToLower(words[i])
		at := strings.LastIndex(word, Prefix)
		if at < 0 {
			continue
		}
		found := strings.Trim(word[at:], decoration)
		for _, next := range words[i+1:] {
			next = strings.Trim(strings.ToLower(next), decoration)
			if whole(found) || !isDigits(next) {
				break
			}
			found += next
		}
		return found
	}
	return text
}

// whole reports whether a text is as long as its header says.
func whole(text string) bool {
	const header = 8 // digits, of five bytes
	rest := text[len(Prefix):]
	if len(rest) < header {
		return false
	}
	b, err := encoding.DecodeString(rest[:header])
	return err != nil || len(rest) >= encoding.EncodedLen(int(binary.BigEndian.Uint16(b[2:])))
}

func isDigits(s string) bool { return strings.Trim(s, digits) == "" }
