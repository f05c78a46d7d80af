package ticket

import (
	"encoding/binary"
	"strings"
	"unicode"
)

// decoration is what stands around and between the parts of a ticket that someone pasted:
// quotes of any kind, brackets, marks of quoted mail, ends of lines and sentences, and what
// nobody sees.
const decoration = "'\"`´‘’‚‛“”„‟«»‹›「」<>()[]{}|*_=\\,.;:!?\u00ad\u200b\u200c\u200d\u2060\ufeff"

// Find gives the ticket or reply in what somebody pasted: by itself or in a command, in
// quotes, broken into lines, with words before and after it. Of several it is the last.
// What holds none is given as it is. Whether the ticket is right, [Decode] tells.
func Find(text string) string {
	words := strings.FieldsFunc(text, unicode.IsSpace)
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

// whole reports whether a text has as many characters as its header says.
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
