// Package foreign holds texts that others chose: what peers, strangers on the network,
// routers, servers and certificates say of themselves. Whoever chose a text may have chosen
// one that moves the cursor of a terminal, turns the direction of a line, ends a quotation or
// runs a command where it is pasted.
//
// So there is one type for them, [Text], and it can be shown in no other way than through
// the one sanitiser of the program: by the verbs of package fmt, in logs, in JSON and YAML
// documents, as a word for a shell. What is left to its user is the place:
//
//	terminal, log, sentence     [Text.String], or any verb of fmt
//	Event or condition          [Text.Bytes] with the limit of the field
//	word of a command           [Text.Word]
//	value in YAML               [Text.YAML]
//	value of a known form       [Text.As]
//
// The text itself is had from [Text.RawUnsafe] alone, to compare it or to dial it. A sentence
// that was made of several texts passes through [Line] once more before it is drawn.
//
// No other package has code that decides what is fit to be shown; a test sees to that.
package foreign

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxShown bounds a text that is shown, in characters: an error of the standard library
// fits, a certificate with a thousand names does not.
const MaxShown = 240

// hidden stands for a character that is not shown. It is a visible one: what is left of a
// hostile text without its worst parts reads too well.
const hidden = unicode.ReplacementChar

// more ends a text that was cut.
const more = "…"

// Text is a text that others chose. Its zero value is the empty one. Two are equal if
// they hold the same text.
type Text struct{ raw string }

// Of marks a text as one of others.
func Of(s string) Text { return Text{s} }

// All marks several.
func All(list []string) []Text {
	out := make([]Text, len(list))
	for i, s := range list {
		out[i] = Of(s)
	}
	return out
}

// RawUnsafe is the text as it came. It is for comparing and dialling: to show it anywhere, or
// to give it to a program, is a mistake.
func (t Text) RawUnsafe() string { return t.raw }

// IsZero reports whether there is no text.
func (t Text) IsZero() bool { return t.raw == "" }

// String is the text on one line, of at most [MaxShown] characters.
func (t Text) String() string { return t.Cut(MaxShown) }

// Cut is the text on one line, of at most max characters and a mark that there is more.
func (t Text) Cut(max int) string {
	if len(t.raw) <= max {
		return Line(t.raw)
	}
	var b strings.Builder
	n := 0
	for _, r := range t.raw {
		if n == max {
			b.WriteString(more)
			break
		}
		b.WriteRune(shown(r))
		n++
	}
	return b.String()
}

// Bytes is the text on one line, in at most max bytes of UTF-8, as fields of Kubernetes'
// objects are bounded.
func (t Text) Bytes(max int) string {
	s := t.Cut(max)
	if len(s) <= max {
		return s
	}
	s = s[:max-len(more)]
	for !utf8.ValidString(s) { // at most one character was cut
		s = s[:len(s)-1]
	}
	return s + more
}

// Word is the text as one word of a POSIX shell's command, and what that makes of it is the
// text as [Text.String] has it. A hyphen that begins it is not shown: in quotes, too, it
// would make the word an option.
func (t Text) Word() string {
	s := t.String()
	if strings.HasPrefix(s, "-") {
		s = string(hidden) + s[1:]
	}
	if Bare(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// YAML is the text as a scalar in double quotes, which JSON reads as well.
func (t Text) YAML() string {
	b, err := json.Marshal(t.String())
	if err != nil {
		return `""` // A string always has a JSON form.
	}
	return string(b)
}

// Format implements [fmt.Formatter]: whatever the verb, what is formatted is the text as it
// is shown.
func (t Text) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), t.String()) }

// LogValue implements [slog.LogValuer].
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText implements [encoding.TextMarshaler]: documents have the text as it is shown.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Text) UnmarshalText(b []byte) error {
	t.raw = string(b)
	return nil
}

// Line makes a text fit for one line, however long: it is for what was made of texts of
// others, and of our own.
func Line(s string) string { return strings.Map(shown, s) }

// Shown reports whether a character is seen in a line, and does nothing else to it.
func Shown(r rune) bool { return shown(r) == r }

// shown is what is seen instead of a character: a blank for every kind of space within a
// line, and [hidden] for what acts on the terminal (line ends, control characters, with which
// escape sequences begin), turns the direction of the line (Unicode TR 9), is not seen at all
// (format characters, fillers, variation selectors) or means nothing (not assigned, private
// use, invalid).
func shown(r rune) rune {
	switch {
	case unicode.Is(unicode.Zs, r):
		return ' '
	case !unicode.IsPrint(r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return hidden
	}
	return r
}

// Bare reports whether a word means itself, without quotes, in every shell that we have
// completions for, and is no option.
func Bare(word string) bool {
	for i, r := range word {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("_./", r):
		case i > 0 && strings.ContainsRune("-:+=@%,", r):
		default:
			return false
		}
	}
	return word != ""
}
