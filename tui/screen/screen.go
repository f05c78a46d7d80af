// Package screen is postern's live screen: eight views of one gateway, kept up to date
// once a second, and a table of several.
//
// Views are drawn from [data] alone and change nothing but it, so that a test can look
// at any screen without a terminal. The program around them asks the gateway, at most
// once a second, and not at all while the terminal is out of focus or the screen is
// frozen; it keeps the last snapshot of a gateway that does not answer, says so, and asks
// again by itself.
//
// The terminal is never asked anything (see package noquery), and what the network says
// passes through [cell.Printable] before it is drawn.
package screen

import (
	"io"
	"time"

	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tui/theme"
)

// ErrNoTerminal reports that a screen was asked for where there is none.
var ErrNoTerminal = tui.ErrNoTerminal

// Options say what the screen shows and where.
type Options struct {
	Source Source
	// Operator makes changes to it, each confirmed first; nil is a screen that only shows.
	Operator Operator
	// Sources are several gateways, of which one at a time is shown, the first one first;
	// Source and Operator are then not used.
	Sources []NamedSource
	// Fleet begins with the table of all of them.
	Fleet bool
	// Check runs the checks of the first peer that is selected, as a key does, once it is known: what a
	// gateway checks by itself may be minutes old, and measures neither loss nor sizes.
	Check bool
	// Note is shown above all else, and wrapped; empty is nothing. It is called for each
	// picture and must not wait.
	Note func() string
	// Actions are commands besides the screen's own.
	Actions []Action
	// Color uses the terminal's first eight colours; see tui.ColorWanted.
	Color bool
	// TrueColor shades charts by value, in themes that have gradients; see tui.TrueColor.
	TrueColor bool
	// Theme is one of Themes, by name or path; empty is dark.
	Theme string
	// Themes are the user's own, besides those that are built in.
	Themes theme.Dir
	// Graph is braille, block or ascii; empty is braille.
	Graph string
	// Mouse: clicks and the wheel are the screen's to begin with; selecting text then takes shift.
	Mouse bool
	// In and Out are the terminal; anything else is ErrNoTerminal.
	In  io.Reader
	Out io.Writer
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}
