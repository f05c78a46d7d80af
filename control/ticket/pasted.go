package ticket

import (
	"encoding/binary"
	"strings"
	"unicode"
)

// decoration is what surrounds and separates the parts of a pasted ticket: quotes, brackets, mail
// quoting, line and sentence ends, and invisible characters.
const decoration = "'\"`´‘’‚‛“”„‟«»‹›「」<>()[]{}|*_=\\,.;:!?\u00ad\u200b\u200c\u200d\u2060\ufeff"

// Find returns the ticket or reply in a pasted text: by itself or in a command, in quotes, broken
// into lines, with words before and after it. If there are several it is the last; a text without
// any is returned unchanged. [Decode] checks the result.
func Find(text string) string {
	// Mail and chat programs break lines also by characters that nobody sees, such as soft hyphens.
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
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
