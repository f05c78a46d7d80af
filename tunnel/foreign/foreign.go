// Package foreign holds untrusted text: what peers, strangers on the network, routers, servers
// and certificates say about themselves. Such text may try to move the cursor of a terminal,
// reverse the direction of a line, end a quotation, or run a command where it is pasted.
//
// So untrusted text has its own type, [Text], which can only be shown through the program's one
// sanitiser: by the verbs of package fmt, in logs, in JSON and YAML documents, and as a word for
// a shell. The caller chooses the form for the place:
//
//	terminal, log, sentence     [Text.String], or any verb of fmt
//	word of a command           [Text.Word]
//	value of a known form       [Text.As]
//
// Only [Text.RawUnsafe] returns the text itself, to compare it or to dial it. A sentence made of
// several texts passes through [Line] once more before it is drawn.
//
// No other package decides which characters may be shown; a test checks that.
package foreign

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode"
)

// MaxShown limits a text that is shown, in characters. An error of the standard library fits, a
// certificate with a thousand names does not.
const MaxShown = 240

// hidden replaces a character that is not shown. It is visible on purpose: a hostile text whose
// worst characters were simply removed looks harmless.
const hidden = unicode.ReplacementChar

// more marks a text that was cut.
const more = "…"

// Text is untrusted text. The zero value is the empty text. Two Texts are equal if their raw
// texts are equal.
type Text struct{ raw string }

// Of marks a string as untrusted.
func Of(s string) Text { return Text{s} }

// RawUnsafe returns the text as received. It is only for comparing and dialling: never show it,
// and never pass it to a program.
func (t Text) RawUnsafe() string { return t.raw }

// IsZero reports whether there is no text.
func (t Text) IsZero() bool { return t.raw == "" }

// String returns the text on one line, with at most [MaxShown] characters.
func (t Text) String() string { return t.Cut(MaxShown) }

// Cut returns the text on one line, with at most max characters and a mark if there is more.
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

// Word returns the text as one word of a POSIX shell command. The shell turns it into the text of
// [Text.String], except that a leading hyphen is hidden: even in quotes it would make the word an
// option.
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

// Format implements [fmt.Formatter]: every verb formats the sanitised text.
func (t Text) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), t.String()) }

// LogValue implements [slog.LogValuer].
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText implements [encoding.TextMarshaler] with the sanitised text.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Text) UnmarshalText(b []byte) error {
	t.raw = string(b)
	return nil
}

// Line sanitises a line of any length that mixes untrusted texts with our own.
func Line(s string) string { return strings.Map(shown, s) }

// Shown reports whether a character is visible in a line and has no other effect.
func Shown(r rune) bool { return shown(r) == r }

// shown returns what is printed for a character. Every kind of space within a line becomes a
// blank. These become [hidden]: characters that act on the terminal (line ends, and control
// characters, which begin escape sequences), that change the direction of the line (Unicode TR
// 9), that are invisible (format characters, fillers, variation selectors), or that mean nothing
// (unassigned, private use, invalid).
func shown(r rune) rune {
	switch {
	case unicode.Is(unicode.Zs, r):
		return ' '
	case !unicode.IsPrint(r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return hidden
	}
	return r
}

// Bare reports whether a word needs no quotes in any shell that we have completions for, and is
// not an option.
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
