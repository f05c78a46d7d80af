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

import "github.com/postern-dev/postern/tui/cell"

// ColorWanted reports whether output to a terminal should be coloured: NO_COLOR is not
// set (no-color.org) and the terminal is not a dumb one.
func ColorWanted(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Printable makes foreign text safe to show on one line; see [cell.Printable].
func Printable(s string) string { return cell.Printable(s) }
