// Package tui shows a gateway's Status on a terminal: [Table] as text that ends, and
// [Watch] as a screen that stays. It renders api.Status and knows nothing else.
//
// # Rules of the screen
//
// A state is a glyph, a word and a colour, so that it survives without colours and for
// eyes that see them differently. The colours are the terminal's own first eight: the
// user's theme decides what they look like. A narrow terminal loses the least
// important columns, and no line is ever wider than it. Peers are sorted by name. Text
// that others chose passes through [Printable] first.
//
// The terminal is never asked anything. That is why the screen is drawn here and not
// by bubbletea, whose package initialisation asks for the background colour: a
// terminal that does not answer, such as a serial console, would hold up every command
// of the binary, the screenless ones too, for five seconds.
package tui

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// ColorWanted reports whether output to a terminal should be coloured: NO_COLOR is not
// set (no-color.org) and the terminal is not a dumb one.
func ColorWanted(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Printable makes foreign text safe to show on one line: control characters (escape
// sequences begin with one), line ends, and the characters that change the direction
// of text (Unicode TR 9), which can make a line read as another, become U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) || isHidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// isHidden tells format characters: direction marks, embeddings, isolates, zero-width
// ones, tags, and the two separators that end a line.
func isHidden(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}

// style is how a text looks, apart from what it says.
type style int

const (
	plain style = iota
	good
	bad
	wary
	quiet
	strong
)

// paint dresses texts, or leaves them as they are.
type paint bool

func (p paint) text(st style, s string) string {
	if !p || s == "" {
		return s
	}
	switch st {
	case good:
		return ansi.NewStyle().ForegroundColor(ansi.Green).Styled(s)
	case bad:
		return ansi.NewStyle().ForegroundColor(ansi.Red).Styled(s)
	case wary:
		return ansi.NewStyle().ForegroundColor(ansi.Yellow).Styled(s)
	case quiet:
		return ansi.NewStyle().Faint().Styled(s)
	case strong:
		return ansi.NewStyle().Bold().Styled(s)
	}
	return s
}
